/* faults.c - what happens to a case: processes are killed and stopped, the disk fills up, files go. */
#include "stress/stress.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES_MAX = 512 };

/* -------------------------------------------------------------------------------------------------------- processes */

static bool read_text(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, size - 1);
    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = 0;
    return got > 0;
}

static pid_t parent_of(pid_t pid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int parent = 0;
    char *end = read_text(path, text, sizeof text) ? strrchr(text, ')') : NULL;
    return end && sscanf(end + 1, " %*c %d", &parent) == 1 ? parent : 0;
}

static bool is_writer(pid_t pid)
{
    char path[64], text[64];
    snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
    return read_text(path, text, sizeof text) && strcmp(text, "tensortap") == 0 &&
           strcmp(text + sizeof "tensortap", "__writer") == 0;
}

/* Does pid descend from the case? Its writers do: the case takes orphans in, or the namespace's first process does. */
static bool belongs(const victims *v, pid_t pid)
{
    for (int i = 0; i < 6 && pid > 1; i++) {
        pid = parent_of(pid);
        if (pid == v->parent)
            return true;
    }
    return false;
}

/* A forked child whose parent was killed goes on saving. */
int children_left(const victims *v)
{
    DIR *dir = opendir("/proc");
    int count = 0;
    for (struct dirent *item; dir && (item = readdir(dir));) {
        pid_t pid = atoi(item->d_name);
        char path[64], text[64];
        snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid); /* a zombie has none */
        count += pid > 1 && pid != getpid() && read_text(path, text, sizeof text) && !is_writer(pid) && belongs(v, pid);
    }
    if (dir)
        closedir(dir);
    return count;
}

int writers_signal(const victims *v, int signal_number)
{
    DIR *dir = opendir("/proc");
    int count = 0;
    for (struct dirent *item; dir && (item = readdir(dir));) {
        pid_t pid = atoi(item->d_name);
        if (pid <= 1 || !is_writer(pid) || !belongs(v, pid))
            continue;
        count++;
        if (signal_number)
            kill(pid, signal_number);
    }
    if (dir)
        closedir(dir);
    return count;
}

/* ------------------------------------------------------------------------------------------------------------- disk */

static void ballast_path(const victims *v, char *path, size_t size)
{
    snprintf(path, size, "%s/ballast", v->dir);
}

static void fill_disk(const victims *v)
{
    char path[600];
    static char block[64 << 10];
    ballast_path(v, path, sizeof path);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    memset(block, 'x', sizeof block);
    for (size_t size = sizeof block; fd >= 0 && size;)
        if (write(fd, block, size) <= 0)
            size /= 2;
    if (fd >= 0)
        close(fd);
}

/* ------------------------------------------------------------------------------------------------------------ files */

static char *files[FILES_MAX];
static int file_count;

static int collect(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)at;
    /* a ring is memory of the program: whoever cuts it under a running program kills that */
    const char *dot = strrchr(path, '.');
    if (type == FTW_F && st->st_size > 0 && file_count < FILES_MAX && !strstr(path, "/ballast") &&
        !(dot && strcmp(dot, ".ring") == 0) &&
        (files[file_count] = strdup(path)))
        file_count++;
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void cut_a_file(victims *v)
{
    file_count = 0;
    nftw(v->dir, collect, 16, FTW_PHYS);
    qsort(files, (size_t)file_count, sizeof *files, by_name);
    if (file_count) {
        const char *path = files[dice_roll(&v->dice, (uint64_t)file_count)];
        struct stat st;
        bool cut = stat(path, &st) == 0 && truncate(path, (off_t)dice_roll(&v->dice, (uint64_t)st.st_size)) == 0;
        if (cut && getenv("STRESS_VERBOSE"))
            fprintf(stderr, "    cut %s\n", path);
        if (cut)
            atomic_store(&v->t->fault_done, true);
    }
    while (file_count)
        free(files[--file_count]);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path) && errno != ENOENT;
}

/* While somebody writes into it new files may come between the look and the removal. */
static bool remove_tree(const char *path)
{
    for (int i = 0; i < 50 && access(path, F_OK) == 0; i++)
        nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return access(path, F_OK) != 0;
}

static void take_directory_away(victims *v, bool rename_it)
{
    char path[600], aside[600];
    int run = atomic_load(&v->t->ranks[0].runs) - 1;
    snprintf(path, sizeof path, "%s/r%d", v->dir, run);
    snprintf(aside, sizeof aside, "%s/moved", v->dir);
    if (rename_it ? rename(path, aside) == 0 : access(path, F_OK) == 0 && (remove_tree(path) || true)) {
        atomic_store(rename_it ? &v->t->renamed : &v->t->removed, true);
        atomic_store(&v->t->fault_done, true);
    }
}

/* ------------------------------------------------------------------------------------------------------------ doing */

/* In a PID namespace of its own the producer is the child of that namespace's first process, our grandchild. */
static pid_t producer_of(const victims *v, int rank)
{
    pid_t pid = v->producers[rank], found = 0;
    if (v->plan->fault != FAULT_PID_SPACE || pid <= 0)
        return pid;
    DIR *dir = opendir("/proc");
    for (struct dirent *item; dir && !found && (item = readdir(dir));) {
        pid_t child = atoi(item->d_name);
        if (child > 1 && parent_of(parent_of(child)) == pid && !is_writer(child))
            found = child;
    }
    if (dir)
        closedir(dir);
    return found;
}

static void kill_producers(const victims *v, int signal_number)
{
    for (int r = 0; r < v->plan->ranks; r++) {
        pid_t pid = producer_of(v, r);
        if (pid > 0)
            kill(pid, signal_number);
    }
}

static void kill_both(const victims *v)
{
    kill_producers(v, SIGSTOP); /* so that nobody starts another writer first */
    for (int i = 0; i < 20 && writers_signal(v, SIGKILL); i++)
        usleep(2000);
    kill_producers(v, SIGKILL);
}

void fault_do(victims *v, fault_kind kind)
{
    switch (kind) {
    case FAULT_NONE: fault_undo(v); return;
    case FAULT_KILL_PRODUCER: kill_producers(v, SIGKILL); break;
    case FAULT_KILL_WRITER:
        if (!writers_signal(v, SIGKILL))
            return;
        break;
    case FAULT_STOP: v->stopped = writers_signal(v, SIGSTOP) > 0; break;
    case FAULT_KILL_BOTH: kill_both(v); break;
    case FAULT_DISK_FULL:
    case FAULT_SPACE_BACK: fill_disk(v); break;
    case FAULT_REMOVE: take_directory_away(v, false); return;
    case FAULT_RENAME: take_directory_away(v, true); return;
    case FAULT_TRUNCATE: cut_a_file(v); return;
    default: return;
    }
    atomic_store(&v->t->fault_done, true);
}

void fault_undo(victims *v)
{
    char path[600];
    ballast_path(v, path, sizeof path);
    unlink(path);
    if (v->stopped)
        writers_signal(v, SIGCONT);
    v->stopped = false;
}
