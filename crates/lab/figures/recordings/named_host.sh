# Runs a command on a machine that is called mail.here.test, in name spaces of its own: unshare -um sh named_host.sh COMMAND...
set -eu
hosts=$(mktemp)
printf '127.0.0.1 mail.here.test mail\n127.0.0.1 localhost\n' >"$hosts"
hostname mail.here.test
mount --bind "$hosts" /etc/hosts
rm "$hosts"
exec "$@"
