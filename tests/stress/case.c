/* case.c - one case: a process that adopts whatever the producers leave behind, strikes with the faults they ask for,
 * waits for the writers, and has the recording compared with the truth, before and after recover. */
#include "stress/stress.h"

#include <errno.h>
#include <ftw.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PRODUCER_MS = 60000, WAIT_MS = 30000, CHECK_MS = 90000, LEFT_MS = 10000, CASE_MS = 300000, UNCOUNTED = 8 };

typedef struct running {
    victims v;
    findings *out;
    uint64_t enabled;
    int alive;
    bool writer_killed;
} running;

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

/* -------------------------------------------------------------------------------------------------------- producers */

static void crash_found(findings *out, const char *who, int status)
{
    if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
        finding_add(out, FIND_CRASH, "%s: %s", who, strsignal(WTERMSIG(status)));
    else if (WIFEXITED(status) && WEXITSTATUS(status) >= 90)
        finding_add(out, FIND_FAILED, "%s: exit %d", who, WEXITSTATUS(status));
}

/* The first process of a PID namespace: its producer has the same number in each. Takes orphans in until all are gone. */
static _Noreturn void namespace_run(const running *c, int rank)
{
    if (unshare(CLONE_NEWNS) != 0 || mount("proc", "/proc", "proc", 0, NULL) != 0)
        _exit(96);
    pid_t producer = fork();
    if (producer == 0)
        producer_run(c->v.plan, rank, c->v.t, c->v.dir, c->enabled);
    int status, result = 0;
    while (wait(&status) > 0)
        if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
            result = 95;
    _exit(result);
}

static _Noreturn void namespace_start(const running *c, int rank)
{
    if (unshare(CLONE_NEWPID) != 0)
        _exit(93);
    pid_t first = fork();
    if (first == 0)
        namespace_run(c, rank);
    int status = 0;
    waitpid(first, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 0);
}

static void start_producers(running *c)
{
    const plan *p = c->v.plan;
    for (int r = 0; r < p->ranks; r++) {
        pid_t pid = fork();
        if (pid == 0 && p->fault == FAULT_PID_SPACE)
            namespace_start(c, r);
        if (pid == 0 && p->fault == FAULT_NO_PROC && unshare(CLONE_NEWNS) != 0)
            _exit(94);
        if (pid == 0)
            producer_run(p, r, c->v.t, c->v.dir, c->enabled);
        c->v.producers[r] = pid;
        c->alive += pid > 0;
    }
}

/* Buries who died; producers are told from writers, which we adopted. */
static void bury(running *c)
{
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        bool producer = false;
        for (int r = 0; r < c->v.plan->ranks; r++)
            if (c->v.producers[r] == pid) {
                producer = true;
                c->v.producers[r] = 0;
                c->alive--;
            }
        crash_found(c->out, producer ? "producer" : "writer", status);
    }
}

static void serve_fault(running *c)
{
    truth *t = c->v.t;
    if (atomic_load(&t->asked) == atomic_load(&t->answered))
        return;
    const op *o = &c->v.plan->ops[atomic_load(&t->fault_op)];
    usleep(o->micros);
    fault_do(&c->v, o->fault);
    /* one stopped while it starts is ended, and a thread writes, which dies with a child that ends by _exit */
    c->writer_killed |= o->fault == FAULT_KILL_WRITER || o->fault == FAULT_STOP;
    atomic_store(&t->answered, atomic_load(&t->asked));
}

static void say_where(running *c, const char *what)
{
    for (int r = 0; r < c->v.plan->ranks; r++)
        if (c->v.producers[r] > 0)
            finding_add(c->out, FIND_HANG, "%s of rank %d in operation %d", what, r, atomic_load(&c->v.t->ranks[r].op));
}

static void run_producers(running *c)
{
    uint64_t start = now_ms();
    start_producers(c);
    while (c->alive > 0) {
        bury(c);
        serve_fault(c);
        if (now_ms() - start > PRODUCER_MS) {
            say_where(c, "the producer");
            fault_undo(&c->v);
            for (int r = 0; r < c->v.plan->ranks; r++)
                if (c->v.producers[r] > 0)
                    kill(c->v.producers[r], SIGKILL);
            start = now_ms();
        }
        usleep(300);
    }
}

/* --------------------------------------------------------------------------------------------------------- checking */

static bool is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static check_policy policy_of(const running *c, bool recovered)
{
    const plan *p = c->v.plan;
    bool done = atomic_load(&c->v.t->fault_done);
    check_policy policy = {.recovered = recovered};
    policy.may_lose = done && FAULTS[p->fault].loses;
    /* a thread dies with the program: what was not drained by then is gone, and has to be listed */
    if (done && p->thread_writer && (p->fault == FAULT_KILL_PRODUCER || p->fault == FAULT_PID_SPACE))
        policy.may_lose = true;
    if (p->file_ring && recovered && p->fault == FAULT_KILL_BOTH)
        policy.may_lose = false;
    if (p->thread_writer) /* a forked child has one too, and may end by _exit */
        policy.may_lose = true;
    for (int r = 0; r < p->ranks; r++)
        policy.opening |= done && atomic_load(&c->v.t->ranks[r].open_status) == -1;
    bool writers_die = p->fault == FAULT_KILL_BOTH || (p->thread_writer && p->fault == FAULT_KILL_PRODUCER);
    policy.uncounted = done && writers_die && !plan_is_native(p) ? UNCOUNTED : 0;
    policy.children_may_lose = done && c->writer_killed;
    policy.damaged = policy.unknown_will_do = done && p->fault == FAULT_TRUNCATE;
    return policy;
}

static void check_dirs(running *c, bool recovered)
{
    char own[600], moved[600];
    int runs = 0, last = atomic_load(&c->v.t->ranks[0].runs) - 1;
    for (int r = 0; r < c->v.plan->ranks; r++)
        runs = atomic_load(&c->v.t->ranks[r].runs) > runs ? atomic_load(&c->v.t->ranks[r].runs) : runs;
    snprintf(moved, sizeof moved, "%s/moved", c->v.dir);
    for (int run = 0; run < runs; run++) {
        snprintf(own, sizeof own, "%s/r%d", c->v.dir, run);
        const char *dirs[2];
        int count = 0;
        if (atomic_load(&c->v.t->removed) && run == last)
            continue; /* there is nothing to read: flush and close have to say so */
        if (is_dir(own))
            dirs[count++] = own;
        if (atomic_load(&c->v.t->renamed) && run == last)
            dirs[count++] = moved;
        for (int i = 0; i < count; i++) {
            tap_error err;
            tap_status status = recovered ? tap_run_recover(dirs[i], NULL, &err)
                                          : tap_run_wait(dirs[i], WAIT_MS, &err);
            if (status == TAP_E_TIMEOUT)
                finding_add(c->out, FIND_HANG, "wait: %.300s", err.message);
            else if (status != TAP_OK && !policy_of(c, recovered).damaged)
                finding_add(c->out, FIND_FAILED, "%s: %.300s", recovered ? "recover" : "wait", err.message);
        }
        check_run(c->v.plan, c->v.t, run, dirs, count, policy_of(c, recovered), c->out);
    }
}

static findings *left_to;

static int look_for_left(const char *path, const struct stat *st, int type, struct FTW *at)
{
    static const char *const ENDS[] = {".tmp", "-journal", "-wal", "-shm"};
    (void)st;
    const char *name = path + at->base;
    bool left = strncmp(name, ".tap-", 5) == 0;
    for (size_t i = 0; i < sizeof ENDS / sizeof ENDS[0]; i++)
        left |= strlen(name) > strlen(ENDS[i]) && strcmp(name + strlen(name) - strlen(ENDS[i]), ENDS[i]) == 0;
    if (left && type == FTW_F)
        finding_add(left_to, FIND_LEFT, "%s", path);
    return 0;
}

/* Whoever records to the place again finds nothing half done there, and leaves nothing. */
static void check_reopened(running *c, bool recovered)
{
    (void)recovered;
    char dir[600];
    const plan *p = c->v.plan;
    int32_t value = 1;
    tap_tensor tensor = {&value, TAP_I32, 0, NULL, NULL};
    for (int run = 0; run < atomic_load(&c->v.t->ranks[0].runs); run++) {
        snprintf(dir, sizeof dir, "%s/r%d", c->v.dir, run);
        tap_options options;
        tap_options_init(&options);
        options.dir = dir;
        options.layout = LAYOUT_NAMES[p->layout];
        options.asynchronous = p->asynchronous;
        options.mode = p->reopened;
        options.rank = 0;
        options.world_size = p->ranks;
        options.distributed = p->ranks > 1;
        options.ring_bytes = p->ring_bytes;
        options.writer = TAP_COMMAND;
        tap_error err;
        tap_recorder *rec;
        tap_status status = tap_recorder_open(&options, &rec, &err);
        if (status == TAP_OK && tap_save(rec, "again", &tensor, NULL) != TAP_OK)
            finding_add(c->out, FIND_FAILED, "a save after opening again");
        if (status == TAP_OK)
            status = tap_recorder_close(rec, &err);
        if (status != TAP_OK)
            finding_add(c->out, FIND_FAILED, "opened again: %.300s", err.message);
        left_to = c->out;
        nftw(dir, look_for_left, 16, FTW_PHYS);
    }
}

/* In a process of its own: it may crash or hang. */
static void check_apart(running *c, void (*look)(running *, bool), bool recovered, const char *what)
{
    pid_t pid = fork();
    if (pid == 0) {
        look(c, recovered);
        fflush(NULL);
        _exit(0);
    }
    uint64_t start = now_ms();
    int status = 0;
    pid_t got;
    while ((got = waitpid(pid, &status, WNOHANG)) == 0) {
        if (now_ms() - start > CHECK_MS) {
            finding_add(c->out, FIND_HANG, "%s", what);
            kill(pid, SIGKILL);
            start = now_ms();
        }
        usleep(500);
    }
    if (got == pid)
        crash_found(c->out, what, status);
}

static void check_calls(running *c)
{
    bool done = atomic_load(&c->v.t->fault_done);
    for (int r = 0; r < c->v.plan->ranks; r++) {
        const truth_rank *rank = &c->v.t->ranks[r];
        bool gone = atomic_load(&c->v.t->removed); /* a renamed one takes its files with it: nothing is lost */
        if (!atomic_load(&rank->done))
            continue; /* killed before it could say anything */
        int32_t opened = atomic_load(&rank->open_status), closed = atomic_load(&rank->close_status);
        if (gone && atomic_load(&rank->close_saw_fault) && closed == TAP_OK)
            finding_add(c->out, FIND_NOT_TOLD, "close said OK, but the directory was removed before");
        bool harmless = !done || c->v.plan->fault == FAULT_KILL_WRITER || c->v.plan->fault == FAULT_NO_PROC ||
                        c->v.plan->fault == FAULT_PID_SPACE;
        if (harmless && opened > 0)
            finding_add(c->out, FIND_FAILED, "open: %.300s", rank->message);
        else if (harmless && closed > 0)
            finding_add(c->out, FIND_FAILED, "close: %.300s", rank->message);
    }
}

/* Every writer ends, and nothing unfinished stays. */
static void check_left(running *c)
{
    uint64_t start = now_ms();
    int left;
    while ((left = writers_signal(&c->v, 0)) > 0 && now_ms() - start < LEFT_MS) {
        bury(c);
        usleep(2000);
    }
    bury(c);
    if (left)
        finding_add(c->out, FIND_LEFT, "%d writers are still at work", left);
    writers_signal(&c->v, SIGKILL);
}

/* --------------------------------------------------------------------------------------------------------- the case */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path) && errno != ENOENT;
}

static bool needs_root(const plan *p)
{
    return FAULTS[p->fault].needs_root || p->disk_bytes;
}

static bool prepare(running *c)
{
    const plan *p = c->v.plan;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (needs_root(p) && (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)) {
        c->out->skipped = true;
        snprintf(c->out->items[0].text, sizeof c->out->items[0].text, "%s needs a mount namespace of its own: %s",
                 FAULTS[p->fault].name, strerror(errno));
        return false;
    }
    char size[64];
    snprintf(size, sizeof size, "size=%llu", (unsigned long long)p->disk_bytes);
    mkdir(c->v.dir, 0750);
    if (p->disk_bytes && mount("tmpfs", c->v.dir, "tmpfs", 0, size) != 0) {
        c->out->skipped = true;
        snprintf(c->out->items[0].text, sizeof c->out->items[0].text, "a small disk cannot be mounted: %s",
                 strerror(errno));
        return false;
    }
    return true;
}

static _Noreturn void case_process(running *c)
{
    if (!prepare(c))
        _exit(0);
    run_producers(c);
    for (uint64_t start = now_ms(); children_left(&c->v) && now_ms() - start < LEFT_MS; usleep(2000))
        bury(c);
    /* the writers go on; what was stopped too, and a disk that is full stays so until they are done */
    if (c->v.stopped)
        fault_undo(&c->v);
    check_apart(c, check_dirs, false, "reading");
    check_left(c);
    fault_undo(&c->v);
    check_apart(c, check_dirs, true, "recover, or reading after it");
    check_calls(c);
    if (c->v.plan->reopened)
        check_apart(c, check_reopened, true, "opening it again");
    _exit(0);
}

void case_run(const plan *made, uint64_t enabled, const char *work, findings *out, bool verbose)
{
    char dir[512];
    snprintf(dir, sizeof dir, "%s/case", work);
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    if (verbose)
        setenv("STRESS_VERBOSE", "1", 1);
    running c = {.out = out, .enabled = enabled};
    c.v = (victims){.plan = made, .dir = dir, .dice = made->seed ^ 0xFA017u};
    c.v.t = truth_map(NULL, true);
    if (!c.v.t) {
        finding_add(out, FIND_FAILED, "no memory for the truth");
        return;
    }
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        c.v.parent = getpid();
        case_process(&c);
    }
    uint64_t start = now_ms();
    int status = 0;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (now_ms() - start > CASE_MS) {
            finding_add(out, FIND_HANG, "the whole case");
            kill(pid, SIGKILL);
            start = now_ms();
        }
        usleep(500);
    }
    crash_found(out, "the case itself", status);
    atomic_fetch_add(&out->operations, (uint64_t)made->count * (uint64_t)made->ranks);
    truth_unmap(c.v.t);
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
