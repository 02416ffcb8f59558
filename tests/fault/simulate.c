/* simulate.c - the machine dies: what a disk may hold then of a recording, and what is read of it.
 *
 * Every workload of up to three operations is recorded once by a child, whose calls that change files are written down
 * (disk_log.h). For the moments before each fdatasync and at the end, states of the disk are made: what was told to be
 * kept is there; of the rest any part, in any order, writes torn between sectors, files long and empty. Each state is
 * opened, verified, read, recovered and read again: every value is whole and right, or verify says that something is
 * missing; a value that a flush promised is there; nothing crashes, hangs or cannot be opened.
 *
 *     simulate [every=N] [subsets=N] [from=N] [case=N]: every N-th workload, at most so many states a moment */
#include "fault/disk_log.h"
#include "record/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

enum { MAX_SAVES = 8, MAX_PENDING = 400, SECTOR = 512, RING = 1 << 20 };

/* ------------------------------------------------------------------------------------------------------- workloads */

typedef enum op { SMALL, PAGE, BIG, STEP, FLUSH, OPS } op;
static const char *const OP_NAMES[OPS] = {"small", "page", "big", "step", "flush"};
static const uint64_t OP_BYTES[OPS] = {100, 6000, (3 << 20) / 2, 0, 0};

typedef struct workload {
    op ops[3];
    int count;
    tap_durability durability;
    uint64_t segment_bytes; /* 0: one segment */
    bool replace;           /* over a recording that is whole */
} workload;

enum { SEQUENCES = 5 + 25 + 125, WORKLOADS = SEQUENCES * 3 * 2 * 2 };

static workload workload_of(int number)
{
    workload w = {.durability = (tap_durability)(number / SEQUENCES % 3),
                  .segment_bytes = number / SEQUENCES / 3 % 2 ? 8192 : 0, .replace = number / SEQUENCES / 6};
    int left = number % SEQUENCES;
    for (w.count = 1; w.count < 3 && left >= (w.count == 1 ? 5 : 25); w.count++)
        left -= w.count == 1 ? 5 : 25;
    for (int i = 0; i < w.count; i++, left /= OPS)
        w.ops[i] = (op)(left % OPS);
    return w;
}

static const char *workload_text(int number)
{
    static char text[120];
    workload w = workload_of(number);
    snprintf(text, sizeof text, "workload %d:", number);
    for (int i = 0; i < w.count; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), " %s", OP_NAMES[w.ops[i]]);
    snprintf(text + strlen(text), sizeof text - strlen(text), ", durability %d, segments of %llu%s", (int)w.durability,
             (unsigned long long)w.segment_bytes, w.replace ? ", replacing" : "");
    return text;
}

static uint8_t byte_of(int save, uint64_t at)
{
    return (uint8_t)((uint64_t)(save + 1) * 77 + at * 13 + at / 239);
}

/* Marks of the log: a save returned, or everything before was flushed. */
enum { MARK_SAVED = 1, MARK_FLUSHED = 1000, MARK_OPENED = 2000 };

static void fail_child(const char *what, const tap_error *err)
{
    fprintf(stderr, "simulate: %s: %s\n", what, err->message);
    _exit(3);
}

static tap_recorder *open_recorder(const char *dir, const workload *w, bool replace)
{
    tap_options options;
    tap_recorder *rec;
    tap_error err;
    tap_options_init(&options);
    options.dir = dir;
    options.writer = "thread";
    options.ring_bytes = RING;
    options.durability = w->durability;
    options.segment_bytes = w->segment_bytes ? w->segment_bytes : options.segment_bytes;
    options.mode = replace ? TAP_OPEN_REPLACE : TAP_OPEN_NEW;
    if (tap_recorder_open(&options, &rec, &err) != TAP_OK)
        fail_child("open", &err);
    return rec;
}

static int save_one(tap_recorder *rec, int number, uint64_t bytes)
{
    char name[16];
    uint8_t *data = malloc(bytes);
    int64_t shape[1] = {(int64_t)bytes};
    for (uint64_t i = 0; i < bytes; i++)
        data[i] = byte_of(number, i);
    snprintf(name, sizeof name, "v%d", number);
    tap_tensor tensor = {.data = data, .dtype = TAP_U8, .ndim = 1, .shape = shape};
    tap_status status = tap_save(rec, name, &tensor, NULL);
    free(data);
    return status == TAP_OK;
}

/* In the child. Saves of the recording that is replaced are called v100 and further. */
static void record(int number, const char *dir, disk_log *log)
{
    workload w = workload_of(number);
    tap_error err;
    bool syncs = w.durability != TAP_DURABLE_PROCESS;
    if (w.replace) {
        tap_recorder *old = open_recorder(dir, &w, false);
        save_one(old, 100, 100);
        save_one(old, 101, 6000);
        tap_recorder_close(old, &err);
    }
    disk_log_into(log, dir);
    tap_recorder *rec = open_recorder(dir, &w, w.replace);
    disk_log_mark(MARK_OPENED);
    for (int i = 0; i < w.count; i++) {
        bool promised = false;
        if (w.ops[i] == STEP)
            promised = tap_step(rec) == TAP_OK && syncs;
        else if (w.ops[i] == FLUSH)
            promised = tap_recorder_flush(rec, -1, &err) == TAP_OK && syncs;
        else if (save_one(rec, i, OP_BYTES[w.ops[i]]))
            disk_log_mark(MARK_SAVED + (uint64_t)i);
        if (w.durability == TAP_DURABLE_SAVE || promised)
            disk_log_mark(MARK_FLUSHED);
    }
    if (tap_recorder_close(rec, &err) == TAP_OK && syncs)
        disk_log_mark(MARK_FLUSHED);
    disk_log_into(NULL, NULL);
}

/* ---------------------------------------------------------------------------------------------------------- states */

/* One moment at which the machine dies: after `end` events. */
typedef struct moment {
    int end;
    int pending[MAX_PENDING], npending; /* events that may be lost */
    bool kept[DISK_EVENTS];             /* those that are not */
    bool saved[MAX_SAVES], promised[MAX_SAVES], opened;
} moment;

static bool folder_of(const char *name, const char *folder)
{
    const char *slash = strrchr(name, '/');
    size_t len = slash ? (size_t)(slash - name) : 0;
    return strlen(folder) == len && strncmp(name, folder, len) == 0;
}

static bool is_kept(const disk_log *log, int at, int end)
{
    const disk_event *e = &log->events[at];
    for (int i = at + 1; i < end; i++) {
        const disk_event *s = &log->events[i];
        bool bytes = e->kind == DISK_WRITE || e->kind == DISK_SIZE;
        if (bytes ? s->kind == DISK_SYNC && s->file == e->file : s->kind == DISK_SYNC_NAMES && folder_of(e->name, s->name))
            return true;
    }
    return false;
}

static void moment_make(const disk_log *log, int end, moment *m)
{
    memset(m, 0, sizeof *m);
    m->end = end;
    for (int i = 0; i < end; i++) {
        const disk_event *e = &log->events[i];
        if (e->kind == DISK_MARK) {
            if (e->offset == MARK_OPENED)
                m->opened = true;
            else if (e->offset == MARK_FLUSHED)
                memcpy(m->promised, m->saved, sizeof m->saved);
            else
                m->saved[e->offset - MARK_SAVED] = true;
        } else if (e->kind <= DISK_SIZE || e->kind == DISK_NAME || e->kind == DISK_GONE) {
            m->kept[i] = is_kept(log, i, end);
            if (!m->kept[i] && m->npending < MAX_PENDING)
                m->pending[m->npending++] = i;
        }
    }
}

/* Which of the pending events the disk has; one may be torn. */
typedef struct state {
    bool has[MAX_PENDING];
    int torn;           /* of the pending; -1: none */
    uint64_t sectors;   /* of a torn write: bit k: sectors k, k + 64, ... are there */
    bool long_files;    /* sizes are those of the moment, with zeros where nothing was written */
} state;

typedef struct image {
    char name[72];
    int file;
    uint8_t *bytes;
    uint64_t size, room;
} image;

static void image_write(image *of, uint64_t offset, const uint8_t *bytes, uint64_t length)
{
    if (offset + length > of->room) {
        of->room = (offset + length) * 2;
        of->bytes = realloc(of->bytes, of->room);
    }
    if (offset > of->size)
        memset(of->bytes + of->size, 0, offset - of->size);
    if (bytes)
        memcpy(of->bytes + offset, bytes, length);
    if (offset + length > of->size) {
        if (!bytes)
            memset(of->bytes + of->size, 0, offset + length - of->size);
        of->size = offset + length;
    }
}

static void apply_bytes(image *files, const disk_log *log, const disk_event *e, const state *s, bool torn, bool only_size)
{
    image *file = &files[e->file];
    const uint8_t *bytes = log->bytes + e->bytes;
    if (e->kind == DISK_SIZE) {
        if (e->offset >= file->size)
            image_write(file, e->offset, (const uint8_t *)"", 0);
        file->size = e->offset;
    } else if (only_size) {
        if (e->offset + e->length > file->size)
            image_write(file, e->offset + e->length, (const uint8_t *)"", 0);
        file->size = file->size > e->offset + e->length ? file->size : e->offset + e->length;
    } else if (!torn) {
        image_write(file, e->offset, bytes, e->length);
    } else {
        for (uint64_t at = 0; at < e->length;) {
            uint64_t sector = (e->offset + at) / SECTOR - e->offset / SECTOR;
            uint64_t end = ((e->offset + at) / SECTOR + 1) * SECTOR - e->offset;
            end = end < e->length ? end : e->length;
            if (s->sectors >> sector % 64 & 1)
                image_write(file, e->offset + at, bytes + at, end - at);
            at = end;
        }
    }
}

static void copy_tree(const char *from, const char *to)
{
    char command[600];
    snprintf(command, sizeof command, "cp -r %s %s", from, to);
    if (system(command) != 0)
        exit(4);
}

/* The files of before, of what is kept, and of what the state has. */
static void state_write(const disk_log *log, const moment *m, const state *s, const char *before, const char *dir)
{
    image *files = calloc((size_t)log->files + 1, sizeof *files);
    struct {
        char name[72];
        int file;
    } names[256];
    int nnames = 0;
    char path[400];
    scratch_clear(dir);
    if (before) { /* names that the log takes away are taken away below */
        copy_tree(before, dir);
    } else {
        snprintf(path, sizeof path, "%.300s/rank0", dir);
        mkdir(dir, 0755);
        mkdir(path, 0755);
    }
    for (int i = 0, p = 0; i < m->end; i++) {
        const disk_event *e = &log->events[i];
        bool pending = p < m->npending && m->pending[p] == i, there = m->kept[i] || (pending && s->has[p]);
        bool torn = pending && s->torn == p;
        p += pending;
        if (e->kind == DISK_WRITE || e->kind == DISK_SIZE) {
            if (there || (e->kind == DISK_WRITE && s->long_files))
                apply_bytes(files, log, e, s, torn, !there);
            continue;
        }
        if (!there || (e->kind != DISK_NAME && e->kind != DISK_GONE))
            continue;
        const char *old[2] = {e->name, e->kind == DISK_NAME && e->other[0] ? e->other : ""};
        for (int o = 0; o < 2; o++) {
            if (!old[o][0])
                continue;
            snprintf(path, sizeof path, "%.300s/%.72s", dir, old[o]);
            unlink(path); /* a file of before */
            for (int k = nnames - 1; k >= 0; k--)
                if (strcmp(names[k].name, old[o]) == 0)
                    names[k] = names[--nnames];
        }
        if (e->kind == DISK_NAME && nnames < 256) {
            snprintf(names[nnames].name, sizeof names[0].name, "%s", e->name);
            names[nnames++].file = e->file;
        }
    }
    for (int k = 0; k < nnames; k++) {
        snprintf(path, sizeof path, "%.300s/%.72s", dir, names[k].name);
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        image *file = &files[names[k].file];
        if (fd < 0 || (file->size && write(fd, file->bytes, file->size) != (ssize_t)file->size)) {
            fprintf(stderr, "simulate: cannot write %s: %s\n", path, strerror(errno));
            exit(4);
        }
        close(fd);
    }
    for (int i = 0; i < log->files; i++)
        free(files[i].bytes);
    free(files);
}

/* -------------------------------------------------------------------------------------------------------- checking */

static struct {
    int workload, moment;
    long number, states, cases, found;
    char text[200]; /* what is being looked at, for a crash */
} now;

typedef struct seen {
    bool right[MAX_SAVES], listed[MAX_SAVES];
    bool file_listed, old[2]; /* old: what was replaced is there, and right */
    tap_status verify;
    bool openable;
    uint64_t lost;
} seen;

static void complain(const char *when, const char *what, int save)
{
    now.found++;
    printf("%s, moment %d, state %ld (case=%d:%d:%ld): %s: ", workload_text(now.workload), now.moment, now.number, now.workload,
           now.moment, now.number, when);
    printf(what, save);
    printf("\n");
}

static void on_problem(void *user, const tap_problem *problem)
{
    seen *s = user;
    if (problem->name[0] == 'v' && atoi(problem->name + 1) < MAX_SAVES)
        s->listed[atoi(problem->name + 1)] = true;
    s->file_listed |= problem->file[0] && (problem->kind == TAP_PROBLEM_CORRUPT || problem->kind == TAP_PROBLEM_MISSING);
    if (getenv("SIMULATE_SHOW"))
        printf("    %s %s %s %s\n", tap_problem_name(problem->kind), problem->name, problem->file, problem->reason);
}

static bool bytes_right(tap_run *run, const tap_record *r, int save)
{
    tap_mapping mapping;
    tap_error err;
    tap_mapping_init(&mapping);
    if (tap_record_map(run, r, &mapping, &err) != TAP_OK)
        return false;
    bool right = r->ndim == 1 && mapping.tensor.data;
    for (int64_t i = 0; right && i < r->shape[0]; i++)
        right = ((const uint8_t *)mapping.tensor.data)[i] == byte_of(save, (uint64_t)i);
    tap_mapping_release(&mapping);
    return right;
}

static void look(const char *dir, const char *when, const moment *m, seen *s)
{
    tap_run *run;
    tap_cursor *cursor;
    tap_error err;
    tap_record r;
    memset(s, 0, sizeof *s);
    s->openable = tap_run_open(dir, &run, &err) == TAP_OK;
    if (!s->openable) {
        if (getenv("SIMULATE_SHOW"))
            printf("    open: %s\n", err.message);
        return;
    }
    tap_verify_options verify;
    tap_verify_result result;
    tap_verify_options_init(&verify);
    tap_verify_result_init(&result);
    verify.on_problem = on_problem;
    verify.user = s;
    s->verify = tap_run_verify(run, &verify, &result, &err);
    s->lost = result.lost;
    tap_query query;
    tap_query_init(&query);
    tap_record_init(&r);
    if (tap_run_query(run, &query, &cursor, &err) == TAP_OK) {
        while (tap_cursor_next(cursor, &r, &err) == TAP_OK) {
            int save = atoi(r.name + 1);
            if (r.state != TAP_RECORD_WHOLE)
                continue;
            bool right = bytes_right(run, &r, save);
            if (right && save < MAX_SAVES)
                s->right[save] = true;
            s->old[0] |= right && save == 100;
            s->old[1] |= right && save == 101;
            if (!right && s->verify == TAP_OK)
                complain(when, "v%d is wrong, and verify says all is well", save);
            else if (!right && save < MAX_SAVES && !s->listed[save] && !s->file_listed && s->verify != TAP_E_FORMAT)
                complain(when, "v%d is wrong, and verify names neither it nor a file", save);
        }
        tap_cursor_close(cursor);
    }
    tap_run_close(run);
    for (int k = 0; k < MAX_SAVES; k++) {
        if (m->saved[k] && !s->right[k] && s->verify == TAP_OK && m->opened && !(s->old[0] && s->old[1]))
            complain(when, "v%d is not there, and verify says all is well", k);
    }
}

static bool anything_there(const char *dir)
{
    char path[1100];
    struct stat st;
    snprintf(path, sizeof path, "%s/rank0/attempt0-000000.tap", dir);
    return stat(path, &st) == 0 && st.st_size > 4096 + 256;
}

/* With SIMULATE_SHOW: what the disk has and what it lost. */
static void show(const disk_log *log, const moment *m, const state *s)
{
    static const char *const KINDS[] = {"write", "size", "sync", "name", "gone", "sync names", "mark"};
    for (int i = 0, p = 0; i < m->end; i++) {
        const disk_event *e = &log->events[i];
        bool pending = p < m->npending && m->pending[p] == i;
        printf("  %s %-10s file %d %s%s%s at %llu, %llu bytes%s\n", !pending ? "      " : s->has[p] ? "has   " : "LOST  ",
               KINDS[e->kind], e->file, e->other, e->other[0] ? " -> " : "", e->name, (unsigned long long)e->offset,
               (unsigned long long)e->length, pending && s->torn == p ? " TORN" : "");
        p += pending;
    }
}

static void check(const disk_log *log, const moment *m, const state *s, const char *before, const char *dir)
{
    seen first, again;
    tap_error err;
    uint64_t records;
    now.states++;
    now.number++;
    snprintf(now.text, sizeof now.text, "case=%d:%d:%ld", now.workload, now.moment, now.number);
    alarm(120);
    if (getenv("SIMULATE_SHOW"))
        show(log, m, s);
    state_write(log, m, s, before, dir);
    look(dir, "read", m, &first);
    for (int k = 0; k < MAX_SAVES; k++)
        if (m->promised[k] && !first.right[k])
            complain("read", first.openable ? "v%d was flushed and is not there" : "v%d was flushed; cannot be opened", k);
    if (!first.openable && anything_there(dir))
        complain("read", "there is a segment, and it cannot be opened", 0);
    tap_status recovered = tap_run_recover(dir, &records, &err);
    if (recovered != TAP_OK && getenv("SIMULATE_SHOW"))
        printf("    recover: %s\n", err.message);
    look(dir, "recovered", m, &again);
    for (int k = 0; k < MAX_SAVES; k++)
        if (first.right[k] && !again.right[k])
            complain("recovered", "v%d was there before", k);
    alarm(0);
}

/* ------------------------------------------------------------------------------------------------------ enumerating */

static uint64_t dice = 88172645463325252ull;

static uint64_t roll(void)
{
    dice ^= dice << 13;
    dice ^= dice >> 7;
    return dice ^= dice << 17;
}

typedef struct walk {
    const disk_log *log;
    const moment *m;
    const char *before, *dir;
    long wanted; /* the only state that is looked at; 0: all */
} walk;

static void visit(const walk *w, const state *s)
{
    if (w->wanted && now.number + 1 != w->wanted) {
        now.number++;
        return;
    }
    check(w->log, w->m, s, w->before, w->dir);
}

/* All subsets where they are few; else what goes wrong most: prefixes, one missing, one alone, and some at random. */
static void visit_subsets(const walk *w, int most)
{
    int n = w->m->npending;
    state s = {.torn = -1};
    if (n < 20 && (1 << n) <= most) {
        for (int mask = 0; mask < 1 << n; mask++) {
            for (int i = 0; i < n; i++)
                s.has[i] = mask >> i & 1;
            visit(w, &s);
        }
        return;
    }
    int step = 1 + 3 * n / most;
    for (int k = 0; k <= n; k += step)
        for (int how = 0; how < 3; how++) {
            for (int i = 0; i < n; i++)
                s.has[i] = how == 0 ? i < k : how == 1 ? i != k : i == k;
            s.long_files = how == 1 && k % 2;
            visit(w, &s);
        }
    for (int r = 0; r < most - 3 * (n / step + 1); r++) {
        uint64_t often = roll() % 4;
        for (int i = 0; i < n; i++)
            s.has[i] = roll() % 4 >= often;
        s.long_files = roll() % 2;
        visit(w, &s);
    }
}

/* Each pending write torn between its sectors, with everything else there or nothing after it. */
static void visit_torn(const walk *w, int most)
{
    int n = w->m->npending, writes = 0;
    for (int p = 0; p < n; p++)
        writes += w->log->events[w->m->pending[p]].kind == DISK_WRITE;
    for (int p = 0; p < n; p++) {
        const disk_event *e = &w->log->events[w->m->pending[p]];
        if (e->kind != DISK_WRITE || (e->offset % SECTOR) + e->length <= SECTOR || roll() % (uint64_t)(1 + 6 * writes / most))
            continue;
        const uint64_t sectors[] = {1, ~1ull, 0x5555555555555555ull, roll() | 1, 3};
        for (int how = 0; how < 5; how++) {
            state s = {.torn = p, .sectors = sectors[how], .long_files = how % 2};
            for (int i = 0; i < n; i++)
                s.has[i] = i <= p || how != 4;
            visit(w, &s);
        }
    }
}

/* Whether the log tells all: with nothing lost the disk holds what the child left. */
static bool log_is_whole(const disk_log *log, const char *before, const char *dir, const char *room)
{
    static moment m;
    static state s;
    char command[700];
    moment_make(log, log->count, &m);
    s.torn = -1;
    memset(s.has, true, sizeof s.has);
    state_write(log, &m, &s, before, room);
    snprintf(command, sizeof command, "diff -r %.300s %.300s", dir, room);
    return m.npending < MAX_PENDING && system(command) == 0;
}

/* only: state of the moment that is looked at, or 0 */
static void simulate(int number, const char *base, disk_log *log, int subsets, int only_moment, long only)
{
    char dir[300], room[300], before[300];
    workload of = workload_of(number);
    snprintf(dir, sizeof dir, "%s/recorded", base);
    snprintf(room, sizeof room, "%s/state", base);
    snprintf(before, sizeof before, "%s/before", base);
    scratch_clear(dir);
    scratch_clear(before);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        record(number, dir, log);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    if (status != 0 || log->overflow) {
        printf("%s: the recording failed\n", workload_text(number));
        now.found++;
        return;
    }
    if (of.replace) { /* what was whole: recorded once more, and left */
        if (fork() == 0) {
            workload w = of;
            tap_error err;
            tap_recorder *old = open_recorder(before, &w, false);
            save_one(old, 100, 100);
            save_one(old, 101, 6000);
            _exit(tap_recorder_close(old, &err) == TAP_OK ? 0 : 1);
        }
        wait(&status);
    }
    now.workload = number;
    now.cases++;
    if (!of.replace && !log_is_whole(log, NULL, dir, room)) { /* replacing begins with files of other times */
        printf("%s: the log misses what was done\n", workload_text(number));
        now.found++;
        return;
    }
    int moments = 0;
    static moment m;
    for (int end = 1; end <= log->count; end++) {
        bool barrier = end == log->count || log->events[end].kind == DISK_SYNC || log->events[end].kind == DISK_SYNC_NAMES;
        if (!barrier)
            continue;
        now.moment = moments++;
        now.number = 0;
        moment_make(log, end, &m);
        if (only_moment >= 0 && now.moment != only_moment)
            continue;
        dice = 88172645463325252ull + (uint64_t)number * 1000 + (uint64_t)now.moment;
        walk w = {log, &m, of.replace ? before : NULL, room, only};
        visit_subsets(&w, subsets);
        visit_torn(&w, subsets);
    }
}

static void died(int signal)
{
    static const char *const TEXT = " died or hung: simulate ";
    if (write(1, TEXT, strlen(TEXT)) < 0 || write(1, now.text, strlen(now.text)) < 0 || write(1, "\n", 1) < 0)
        _exit(5);
    (void)signal;
    _exit(5);
}

int main(int argc, char **argv)
{
    int every = 1, subsets = 4096, from = 0, only = -1, only_moment = -1;
    long only_state = 0;
    for (int i = 1; i < argc; i++)
        if (sscanf(argv[i], "every=%d", &every) != 1 && sscanf(argv[i], "subsets=%d", &subsets) != 1 &&
            sscanf(argv[i], "from=%d", &from) != 1 && sscanf(argv[i], "case=%d:%d:%ld", &only, &only_moment, &only_state) < 1) {
            fprintf(stderr, "usage: simulate [every=N] [subsets=N] [from=N] [case=WORKLOAD[:MOMENT[:STATE]]]\n");
            return 2;
        }
    signal(SIGSEGV, died);
    signal(SIGBUS, died);
    signal(SIGALRM, died);
    setenv("TMPDIR", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", 0);
    char *base = scratch_make();
    disk_log *log = disk_log_new();
    disk_clock_ahead = 0;
    for (int number = only >= 0 ? only : from; number < WORKLOADS; number += every) {
        simulate(number, base, log, subsets, only_moment, only_state);
        if (only >= 0)
            break;
    }
    printf("simulate: %ld workloads, %ld states of the disk, %ld findings\n", now.cases, now.states, now.found);
    scratch_drop(base);
    return now.found ? 1 : 0;
}
