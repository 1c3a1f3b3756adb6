/* Programs with one well-known mistake each, and their correct twins, in C:
 *
 *     mistakes NAME [twin]
 *
 * Each works in the current directory and promises by lines to $ORDO_MARK. mistakes.py has the checks. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK 4096
#define ROUNDS 3
#define RECORD (8 + 2 * BLOCK)

static void need(int good, const char *what)
{
    if (!good) {
        perror(what);
        exit(2);
    }
}

static void mark(const char *words, int n)
{
    char line[64];
    int fd = open(getenv("ORDO_MARK"), O_WRONLY), len = sprintf(line, "%s %d\n", words, n);
    need(fd >= 0 && write(fd, line, len) == len && close(fd) == 0, "a mark");
}

/* Blocks that all say which round they are of. */
static void contents(char *to, int n, int blocks)
{
    for (int at = 0; at < blocks * BLOCK; at += 16) {
        memset(to + at, '.', 16);
        memcpy(to + at, &(uint32_t){n}, 4);
    }
}

static uint32_t crc32(const unsigned char *data, size_t len)
{
    uint32_t sum = ~0u;
    while (len--) {
        sum ^= *data++;
        for (int bit = 0; bit < 8; bit++)
            sum = sum >> 1 ^ (sum & 1 ? 0xedb88320 : 0);
    }
    return ~sum;
}

/* A length, a sum, and two blocks. */
static const char *record(int n)
{
    static char data[RECORD];
    contents(data + 8, n, 2);
    memcpy(data, &(uint32_t){2 * BLOCK}, 4);
    memcpy(data + 4, &(uint32_t){crc32((unsigned char *)data + 8, 2 * BLOCK)}, 4);
    return data;
}

static void sync_dir(void)
{
    int fd = open(".", O_RDONLY | O_DIRECTORY);
    need(fd >= 0 && fsync(fd) == 0 && close(fd) == 0, "the directory");
}

/* Replaces db as it should be done. */
static void replace(int n)
{
    char data[3 * BLOCK];
    contents(data, n, 3);
    int fd = open("new", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    need(fd >= 0 && write(fd, data, sizeof data) == sizeof data, "new");
    need(fsync(fd) == 0 && close(fd) == 0 && rename("new", "db") == 0, "db");
    sync_dir();
}

/* Time in which the kernel may write what it has. */
static void pause_a_moment(void)
{
    usleep(120000);
}

static int open_log(int flags)
{
    int fd = open("log", O_RDWR | O_CREAT | flags, 0644);
    need(fd >= 0 && fsync(fd) == 0, "log");
    sync_dir();
    return fd;
}

/* fsync gets the descriptor of a lock file that was written long ago. */
static void wrong_descriptor(int twin)
{
    int lock = open("lock", O_RDWR | O_CREAT, 0644);
    need(lock >= 0 && fsync(lock) == 0, "lock");
    int log = open_log(0);
    for (int n = 1; n <= ROUNDS; n++) {
        mark("begin done", n);
        need(write(log, record(n), RECORD) == RECORD, "log");
        need(fsync(twin ? log : lock) == 0, "fsync");
        mark("done", n);
    }
}

/* sync_file_range is taken for fsync. */
static void range_sync(int twin)
{
    int log = open_log(0), all = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    for (int n = 1; n <= ROUNDS; n++) {
        mark("begin done", n);
        need(write(log, record(n), RECORD) == RECORD, "log");
        need((twin ? fdatasync(log) : sync_file_range(log, 0, 0, all)) == 0, "sync");
        mark("done", n);
    }
}

/* A record is appended in two writes. The reader of the first program believes its length; the twin's, its sum. */
static void append_unchecked(int twin)
{
    int log = open_log(O_APPEND), first = BLOCK + 100;
    (void)twin;
    for (int n = 1; n <= ROUNDS; n++) {
        mark("begin done", n);
        const char *data = record(n);
        need(write(log, data, first) == first, "log");
        pause_a_moment();
        need(write(log, data + first, RECORD - first) == RECORD - first && fsync(log) == 0, "log");
        mark("done", n);
    }
}

/* A file of several blocks is overwritten in place. */
static void overwrite_in_place(int twin)
{
    char data[3 * BLOCK];
    replace(0);
    mark("done", 0);
    for (int n = 1; n <= ROUNDS; n++) {
        mark("begin done", n);
        if (twin) {
            replace(n);
        } else {
            int fd = open("db", O_WRONLY);
            contents(data, n, 3);
            need(fd >= 0 && pwrite(fd, data, BLOCK, 0) == BLOCK, "db");
            pause_a_moment();
            need(pwrite(fd, data + BLOCK, 2 * BLOCK, BLOCK) == 2 * BLOCK, "db");
            need(fsync(fd) == 0 && close(fd) == 0, "db");
        }
        mark("done", n);
    }
}

int main(int count, char **words)
{
    const char *name = count > 1 ? words[1] : "";
    int twin = count > 2 && strcmp(words[2], "twin") == 0;
    if (strcmp(name, "wrong-descriptor") == 0)
        wrong_descriptor(twin);
    else if (strcmp(name, "sync-file-range") == 0)
        range_sync(twin);
    else if (strcmp(name, "append-unchecked") == 0)
        append_unchecked(twin);
    else if (strcmp(name, "overwrite-in-place") == 0)
        overwrite_in_place(twin);
    else
        return 2;
    return 0;
}
