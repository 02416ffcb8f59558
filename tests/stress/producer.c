/* producer.c - the program that records: carries the operations of a plan out, and notes what it is about to save and
 * what had returned. It looks at nothing else: what is right is for check.c to say. */
#include "stress/stress.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ANSWER_TRIES = 40000, LATE_MAX = MAX_OPS };

/* A gradient that comes at the end. */
typedef struct late {
    uint32_t base, slot;
    uint32_t elements;
    tap_saved saved;
} late;

typedef struct producer {
    const plan *plan;
    truth *t;
    truth_rank *me;
    const char *dir;
    int rank;
    uint16_t run, attempt;
    tap_recorder *rec;
    int64_t step;
    bool child;
    late lates[LATE_MAX];
    int late_count;
} producer;

/* ----------------------------------------------------------------------------------------------------------- values */

/* The elements of record `number`; strided: every second one of a larger array. NULL without memory. */
static int32_t *make_elements(uint32_t number, uint32_t count, bool strided)
{
    uint32_t gap = strided ? 2 : 1;
    int32_t *data = malloc((size_t)count * gap * sizeof *data + 64);
    for (uint32_t i = 0; data && i < count; i++)
        data[(size_t)i * gap] = truth_value(number, i);
    return data;
}

static tap_tensor make_tensor(int32_t *data, int64_t *shape, bool strided)
{
    static const int64_t TWO[1] = {2};
    return (tap_tensor){data, TAP_I32, 1, shape, strided ? TWO : NULL};
}

static truth_record expected(const producer *p)
{
    truth_record like = {.rank = (uint16_t)p->rank, .run = p->run, .step = p->step};
    like.flags = p->child ? TRUTH_CHILD : 0;
    return like;
}

uint32_t value_save(tap_recorder *rec, truth *t, const truth_record *like, bool strided, tap_saved *saved)
{
    uint32_t number = truth_begin(t, like, &like->elements, 1);
    int32_t *data = make_elements(number, like->elements, strided);
    int64_t shape[1] = {like->elements};
    tap_tensor tensor = make_tensor(data, shape, strided);
    char name[32];
    snprintf(name, sizeof name, "v%u", number);
    tap_save_info info = TAP_SAVE_INFO(.saved = saved);
    truth_end(t, number, 1, tap_save(rec, name, &tensor, &info));
    memset(data, 0xA5, (size_t)like->elements * 4); /* what was saved must not follow later changes */
    free(data);
    return number;
}

static uint32_t save_one(producer *p, uint32_t elements, bool strided, tap_saved *saved)
{
    truth_record like = expected(p);
    like.elements = elements;
    return value_save(p->rec, p->t, &like, strided, saved);
}

static void do_nested(producer *p, const op *o)
{
    static const char *const KEYS[MAX_LEAVES] = {"a", "b.c", "0", "key"};
    static const tap_value_type TYPES[] = {TAP_VALUE_LIST, TAP_VALUE_DICT, TAP_VALUE_TUPLE};
    uint32_t elements[MAX_LEAVES];
    for (uint32_t i = 0; i < o->leaves; i++)
        elements[i] = 1 + o->elements / (i + 1); /* never empty: the first element says which leaf it is */
    truth_record like = expected(p);
    uint32_t first = truth_begin(p->t, &like, elements, o->leaves);
    int64_t shapes[MAX_LEAVES];
    tap_value leaves[MAX_LEAVES];
    memset(leaves, 0, sizeof leaves);
    for (uint32_t i = 0; i < o->leaves; i++) {
        shapes[i] = elements[i];
        leaves[i].type = TAP_VALUE_TENSOR;
        leaves[i].tensor = make_tensor(make_elements(first + i, elements[i], o->strided), &shapes[i], o->strided);
    }
    tap_value value = {.type = TYPES[o->how], .items = leaves, .len = o->leaves, .keys = KEYS};
    char name[32];
    snprintf(name, sizeof name, "v%u", first);
    truth_end(p->t, first, o->leaves, tap_save_value(p->rec, name, &value, NULL));
    for (uint32_t i = 0; i < o->leaves; i++)
        free(leaves[i].tensor.data);
}

static void save_gradient(producer *p, const late *g)
{
    truth_record like = expected(p);
    like.flags |= TRUTH_GRAD;
    like.base = g->base;
    like.step = g->saved.step;
    uint32_t number = truth_begin(p->t, &like, &g->elements, 1);
    int32_t *data = make_elements(number, g->elements, false);
    int64_t shape[1] = {g->elements};
    tap_tensor tensor = make_tensor(data, shape, false);
    char name[32];
    snprintf(name, sizeof name, "v%u", g->base);
    tap_save_info info = TAP_SAVE_INFO(.kind = TAP_KIND_GRAD, .has_step = true, .has_call = true,
                                       .step = g->saved.step, .call = g->saved.call);
    truth_end(p->t, number, 1, tap_save(p->rec, name, &tensor, &info));
    atomic_store(&p->t->records[g->slot].state, TRUTH_EMPTY);
    free(data);
}

static void do_grad(producer *p, const op *o)
{
    late g = {.elements = 1 + o->elements % 5000};
    g.base = save_one(p, g.elements, o->strided, &g.saved);
    if (!g.saved.wanted)
        return;
    truth_record like = expected(p);
    like.flags |= TRUTH_GRAD | TRUTH_ANNOUNCED;
    like.base = g.base;
    uint32_t none = 0;
    g.slot = truth_begin(p->t, &like, &none, 1);
    int64_t shape[1] = {g.elements};
    tap_tensor tensor = {NULL, TAP_I32, 1, shape, NULL};
    char name[32];
    snprintf(name, sizeof name, "v%u", g.base);
    tap_save_info info = TAP_SAVE_INFO(.kind = TAP_KIND_GRAD, .flags = TAP_SAVE_SLOT, .has_step = true,
                                       .has_call = true, .step = g.saved.step, .call = g.saved.call);
    truth_end(p->t, g.slot, 1, tap_save(p->rec, name, &tensor, &info));
    if (o->how == 0)
        save_gradient(p, &g);
    else if (o->how == 1 && p->late_count < LATE_MAX)
        p->lates[p->late_count++] = g;
}

typedef struct worker {
    producer *p;
    uint32_t count, seed;
} worker;

static void *burst_work(void *argument)
{
    worker *w = argument;
    for (uint32_t i = 0; i < w->count; i++)
        save_one(w->p, (w->seed + i * 7919u) % 30000, false, NULL);
    return NULL;
}

static void do_burst(producer *p, const op *o)
{
    pthread_t ids[MAX_THREADS];
    worker workers[MAX_THREADS];
    bool began[MAX_THREADS];
    for (uint32_t i = 0; i < o->threads; i++) {
        workers[i] = (worker){p, o->count, o->elements + i * 104729u};
        began[i] = pthread_create(&ids[i], NULL, burst_work, &workers[i]) == 0;
    }
    for (uint32_t i = 0; i < o->threads; i++)
        if (began[i])
            pthread_join(ids[i], NULL);
}

static void do_fork(producer *p, const op *o)
{
    pid_t pid = fork();
    if (pid == 0) {
        p->child = true;
        for (uint32_t i = 0; i <= o->count % 8; i++)
            save_one(p, (o->elements + i) % 30000, false, NULL);
        if (o->how == 0)
            tap_recorder_close(p->rec, NULL);
        if (o->how == 2)
            kill(getpid(), SIGKILL);
        _exit(0);
    }
    int status = 0;
    if (pid > 0 && waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
        raise(WTERMSIG(status)); /* the case sees that something crashed */
}

/* ------------------------------------------------------------------------------------------------- open and close */

static void note(producer *p, _Atomic int32_t *where, tap_status status, const tap_error *err)
{
    if (status != TAP_OK)
        snprintf(p->me->message, sizeof p->me->message, "%.390s", err->message);
    atomic_store(where, (int32_t)status);
}

static void forget_before(producer *p)
{
    uint32_t count = atomic_load(&p->t->next);
    for (uint32_t i = 0; i < count; i++)
        if (p->t->records[i].rank == p->rank && p->t->records[i].run == p->run)
            atomic_store(&p->t->records[i].state, TRUTH_EMPTY);
}

static void do_open(producer *p, const op *o)
{
    const plan *made = p->plan;
    char dir[512];
    if (!plan_is_native(made) && atomic_load(&p->me->runs)) /* other tools know no attempts: a directory for each */
        p->run++;
    atomic_store(&p->me->runs, p->run + 1);
    snprintf(dir, sizeof dir, "%s/r%d", p->dir, p->run);
    tap_options options;
    tap_options_init(&options);
    options.dir = dir;
    options.layout = LAYOUT_NAMES[made->layout];
    options.mode = o->mode;
    options.ring_bytes = made->ring_bytes;
    options.ring = made->file_ring ? TAP_RING_FILE : TAP_RING_MEMORY;
    options.segment_bytes = made->segment_bytes;
    options.durability = (tap_durability)made->durability;
    options.asynchronous = made->asynchronous;
    options.stall_ms = made->stall_ms;
    options.reserve_bytes = 128 << 10;
    options.rank = options.device_index = p->rank;
    options.world_size = made->ranks;
    options.distributed = made->ranks > 1;
    options.writer = made->thread_writer ? "thread" : TAP_COMMAND;
    tap_error err;
    tap_status status = tap_recorder_open(&options, &p->rec, &err);
    note(p, &p->me->open_status, status, &err);
    if (status == TAP_OK && o->mode == TAP_OPEN_REPLACE && plan_is_native(made))
        forget_before(p);
    p->attempt++;
    p->step = 0;
    p->late_count = 0;
}

static void do_close(producer *p)
{
    for (int i = 0; i < p->late_count && p->rec; i++)
        save_gradient(p, &p->lates[i]);
    p->late_count = 0;
    if (!p->rec)
        return;
    tap_error err;
    atomic_store(&p->me->close_saw_fault, atomic_load(&p->t->fault_done));
    tap_status status = tap_recorder_close(p->rec, &err);
    p->rec = NULL;
    note(p, &p->me->close_status, status, &err);
}

/* ----------------------------------------------------------------------------------------------------------- faults */

/* Every descriptor that may be open is; inherited by a command that is started, or not. */
static void exhaust_descriptors(bool inherited)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 64;
    setrlimit(RLIMIT_NOFILE, &limit);
    while (fcntl(1, inherited ? F_DUPFD : F_DUPFD_CLOEXEC, 3) >= 0)
        ;
}

static void wait_for_answer(producer *p)
{
    for (int i = 0; i < ANSWER_TRIES && atomic_load(&p->t->answered) != atomic_load(&p->t->asked); i++)
        usleep(500);
}

static void do_fault(producer *p, const op *o, int index)
{
    if (p->rank != 0)
        return;
    if (o->fault == FAULT_NO_FDS) {
        exhaust_descriptors(o->micros % 2);
        atomic_store(&p->t->fault_done, true);
        return;
    }
    wait_for_answer(p);
    atomic_store(&p->t->fault_op, (uint32_t)index);
    atomic_fetch_add(&p->t->asked, 1);
    if (o->wait)
        wait_for_answer(p);
}

static void do_operation(producer *p, const op *o, int index)
{
    tap_error err;
    if (o->kind == OP_OPEN)
        do_open(p, o);
    else if (o->kind == OP_CLOSE)
        do_close(p);
    else if (o->kind == OP_FAULT)
        do_fault(p, o, index);
    else if (o->kind == OP_PAUSE)
        usleep(o->micros);
    else if (!p->rec)
        return;
    else if (o->kind == OP_SAVE)
        save_one(p, o->elements, o->strided, NULL);
    else if (o->kind == OP_NESTED)
        do_nested(p, o);
    else if (o->kind == OP_GRAD)
        do_grad(p, o);
    else if (o->kind == OP_BURST)
        do_burst(p, o);
    else if (o->kind == OP_FORK)
        do_fork(p, o);
    else if (o->kind == OP_STEP) {
        atomic_fetch_add(&p->me->marks, 1);
        tap_step(p->rec);
        p->step++;
    } else if (o->kind == OP_FLUSH) {
        note(p, &p->me->flush_status, tap_recorder_flush(p->rec, -1, &err), &err);
    }
}

static void say(void *user, tap_log_level level, const char *message)
{
    (void)user;
    fprintf(stderr, "    said (%d): %s\n", (int)level, message);
}

_Noreturn void producer_run(const plan *made, int rank, truth *t, const char *dir, uint64_t enabled)
{
    producer *p = calloc(1, sizeof *p);
    if (!p)
        _exit(98);
    *p = (producer){.plan = made, .t = t, .me = &t->ranks[rank], .dir = dir, .rank = rank};
    if (getenv("STRESS_VERBOSE"))
        tap_log_set(say, NULL);
    if (made->fault == FAULT_NO_PROC && mount("tmpfs", "/proc", "tmpfs", 0, "size=4k") != 0)
        _exit(97);
    for (int i = 0; i < made->count; i++) {
        if (!(enabled >> i & 1))
            continue;
        atomic_store(&p->me->op, i);
        do_operation(p, &made->ops[i], i);
    }
    wait_for_answer(p); /* a fault that is under way strikes a program that is still there */
    atomic_store(&p->me->done, true);
    free(p);
    _exit(0);
}
