# Makes the settings of a sendmail that queues below FILES, delivers with procmail, and passes mail for other hosts on to port 8326:
# sendmail.sh WORK FILES.
set -eu
work=$1 files=$2
root=$work/sendmail
mkdir -p "$files/mqueue" "$files/mail"
chmod 700 "$files/mqueue"
# DEFAULT is the mailbox; procmail takes turns by a lock file beside it.
cat >"$work/procmailrc" <<RC
DEFAULT=$files/mail/\$1
ORGMAIL=$files/mail/\$1
LOGFILE=$files/procmail.log
SHELL=/bin/sh
:0:
$files/mail/\$1
RC
cat >"$work/sendmail.mc" <<MC
divert(-1)
include(\`$root/usr/share/sendmail/cf/m4/cf.m4')
divert(0)
OSTYPE(\`linux')
define(\`confDOMAIN_NAME', \`here.test')
define(\`QUEUE_DIR', \`$files/mqueue')
define(\`STATUS_FILE', \`')
define(\`confPID_FILE', \`$work/sendmail.pid')
define(\`HELP_FILE', \`')
define(\`ALIAS_FILE', \`$work/aliases')
define(\`confCONTROL_SOCKET_NAME', \`')
define(\`confRUN_AS_USER', \`root')
define(\`confDONT_BLAME_SENDMAIL', \`GroupWritableDirPathSafe,GroupWritableForwardFileSafe')
define(\`confDEF_USER_ID', \`root:root')
define(\`confLOG_LEVEL', \`9')

define(\`confSERVICE_SWITCH_FILE', \`$work/switch')
define(\`SMART_HOST', \`relay:[127.0.0.1]')
define(\`RELAY_MAILER_ARGS', \`TCP \$h 8326')
define(\`LOCAL_MAILER_PATH', \`$root/usr/bin/procmail')
define(\`LOCAL_MAILER_ARGS', \`procmail -m $work/procmailrc \$u')
define(\`LOCAL_MAILER_FLAGS', \`SPfhn9')
FEATURE(\`accept_unresolvable_domains')
FEATURE(\`accept_unqualified_senders')
FEATURE(\`nocanonify')
FEATURE(\`no_default_msa')
DAEMON_OPTIONS(\`Family=inet, Name=MTA, Port=8325, Addr=127.0.0.1')
MAILER(\`local')
MAILER(\`smtp')
LOCAL_CONFIG
Cwhere.test
MC
printf 'hosts files\naliases files\n' >"$work/switch"
m4 -D_CF_DIR_="$root/usr/share/sendmail/cf/" "$work/sendmail.mc" >"$work/sendmail.cf"
sed -i 's/^Mlocal,\(.*\)F=[^,]*/Mlocal,\1F=lsDFMAPShn9/' "$work/sendmail.cf"
echo 'postmaster: root' >"$work/aliases"
chmod 755 "$root/usr/libexec/sendmail/sendmail" "$root/usr/bin/procmail"
LD_LIBRARY_PATH="$root/usr/lib/x86_64-linux-gnu" "$root/usr/libexec/sendmail/sendmail" -C "$work/sendmail.cf" -bi
