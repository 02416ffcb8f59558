/* fake_cuda.c - a CUDA driver for tests on machines without one: a library with the symbols of src/device/driver.h, loaded by
 * TENSORTAP_CUDA_DRIVER. A stream is a thread, a capture makes a list of what was launched, kernels run natively; what a test wants
 * of it beyond that is set through the functions of fake_cuda.h. */
#include "fake_cuda.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "native_kernels.h"

enum { MADE_TO_FAIL = 999 };

static atomic_int next_failure, delay_us, balance;

void fake_fail_at(int n)
{
    atomic_store(&next_failure, n);
}

void fake_delay(int us)
{
    atomic_store(&delay_us, us);
}

int fake_balance(void)
{
    return atomic_load(&balance);
}

static bool fails(void)
{
    int left = atomic_load(&next_failure);
    return left && atomic_fetch_sub(&next_failure, 1) == 1;
}

/* Calls that take something, and those that give it back. */
static int taken(bool refused)
{
    atomic_fetch_add(&balance, !refused);
    return refused ? MADE_TO_FAIL : 0;
}

static int given_back(void)
{
    atomic_fetch_sub(&balance, 1);
    return 0;
}

int cuGetErrorString(int result, const char **text)
{
    *text = result == MADE_TO_FAIL ? "made to fail" : "no text";
    return 0;
}

/* ---------------------------------------------------------------------------------------------------------- streams */

typedef struct work {
    struct work *next;
    enum { GATE, LEAF, WRITE } kind;
    unsigned blocks, threads;
    uint64_t *at, value;
    union {
        tap_k_gate gate;
        tap_k_tap leaf;
    };
} work;

typedef struct list {
    work *first, **end;
} list;

struct fake_graph {
    list nodes;
};

struct fake_stream {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    list queue;
    bool busy, ends;
    struct fake_graph *capture; /* what is launched goes there */
};

static void list_add(list *to, work *node)
{
    node->next = NULL;
    *to->end = node;
    to->end = &node->next;
}

static void run(const work *node)
{
    int most = atomic_load(&delay_us);
    if (most)
        usleep((unsigned)rand() % (unsigned)most);
    switch (node->kind) {
    case GATE: native_gate(&node->gate); break;
    case LEAF: native_leaf(&node->leaf, node->blocks, node->threads); break;
    case WRITE: __atomic_store_n(node->at, node->value, __ATOMIC_RELEASE); break;
    }
}

static void *run_stream(void *arg)
{
    struct fake_stream *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->ends || s->queue.first) {
        work *node = s->queue.first;
        if (!node) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        if (!(s->queue.first = node->next))
            s->queue.end = &s->queue.first;
        s->busy = true;
        pthread_mutex_unlock(&s->lock);
        run(node);
        free(node);
        pthread_mutex_lock(&s->lock);
        s->busy = false;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

struct fake_stream *fake_stream_create(void)
{
    struct fake_stream *s = calloc(1, sizeof *s);
    s->queue.end = &s->queue.first;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    pthread_create(&s->thread, NULL, run_stream, s);
    return s;
}

void fake_stream_wait(struct fake_stream *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->queue.first || s->busy)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

void fake_stream_destroy(struct fake_stream *s)
{
    pthread_mutex_lock(&s->lock);
    s->ends = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* Takes the node over. */
static int submit(struct fake_stream *s, work *node)
{
    if (!s) {
        run(node);
        free(node);
        return 0;
    }
    pthread_mutex_lock(&s->lock);
    list_add(s->capture ? &s->capture->nodes : &s->queue, node);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return 0;
}

void fake_capture_begin(struct fake_stream *s)
{
    struct fake_graph *graph = calloc(1, sizeof *graph);
    graph->nodes.end = &graph->nodes.first;
    pthread_mutex_lock(&s->lock);
    s->capture = graph;
    pthread_mutex_unlock(&s->lock);
}

struct fake_graph *fake_capture_end(struct fake_stream *s)
{
    pthread_mutex_lock(&s->lock);
    struct fake_graph *graph = s->capture;
    s->capture = NULL;
    pthread_mutex_unlock(&s->lock);
    return graph;
}

void fake_replay(const struct fake_graph *graph, struct fake_stream *s)
{
    for (const work *node = graph->nodes.first; node; node = node->next) {
        work *copy = malloc(sizeof *copy);
        *copy = *node;
        submit(s, copy);
    }
}

void fake_graph_free(struct fake_graph *graph)
{
    for (work *node = graph->nodes.first, *next; node; node = next) {
        next = node->next;
        free(node);
    }
    free(graph);
}

/* --------------------------------------------------------------------------------------------------------- captures */

static atomic_int capture_status, capture_result, modes_relaxed;
static _Thread_local int capture_mode;

void fake_capturing(int result, int status)
{
    atomic_store(&capture_result, result);
    atomic_store(&capture_status, status);
}

int fake_relaxed(void)
{
    return atomic_load(&modes_relaxed);
}

int fake_mode(void)
{
    return capture_mode;
}

int cuStreamIsCapturing(struct fake_stream *s, int *status)
{
    *status = atomic_load(&capture_status);
    if (!s)
        return atomic_load(&capture_result);
    pthread_mutex_lock(&s->lock);
    *status = s->capture != NULL;
    pthread_mutex_unlock(&s->lock);
    return 0;
}

int cuThreadExchangeStreamCaptureMode(int *mode)
{
    int before = capture_mode;
    atomic_fetch_add(&modes_relaxed, *mode == 2);
    capture_mode = *mode;
    *mode = before;
    return 0;
}

/* ----------------------------------------------------------------------------------------------------------- memory */

static void *blocks_of_memory[64]; /* so that what is left behind on purpose is no leak to a sanitizer */

static int memory_place(const void *at)
{
    int i = 0;
    while (i < 63 && blocks_of_memory[i] != at)
        i++;
    return i;
}

int cuMemAlloc_v2(void **out, size_t bytes)
{
    bool refused = fails();
    *out = refused ? NULL : malloc(bytes);
    blocks_of_memory[memory_place(NULL)] = *out;
    return taken(refused);
}

int cuMemFree_v2(void *at)
{
    blocks_of_memory[memory_place(at)] = NULL;
    free(at);
    return given_back();
}

int cuMemsetD8_v2(void *at, unsigned char value, size_t bytes)
{
    memset(at, value, bytes);
    return fails() ? MADE_TO_FAIL : 0;
}

int cuMemcpyDtoH_v2(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    return fails() ? MADE_TO_FAIL : 0;
}

int cuMemHostRegister_v2(void *at, size_t bytes, unsigned flags)
{
    (void)at;
    if (bytes % 4096 || bytes > 64 << 20 || flags != 3)
        return 1;
    return taken(fails());
}

int cuMemHostUnregister(void *at)
{
    (void)at;
    return given_back();
}

int cuStreamWriteValue64_v2(struct fake_stream *s, uint64_t *at, uint64_t value, unsigned flags)
{
    if (flags || fails())
        return MADE_TO_FAIL;
    work *node = calloc(1, sizeof *node);
    node->kind = WRITE;
    node->at = at;
    node->value = value;
    return submit(s, node);
}

/* ---------------------------------------------------------------------------------------------------------- kernels */

static char the_module, gate_function, leaf_function;

int cuModuleLoadData(void **module, const void *text)
{
    if (!strstr(text, ".version 7.0") || !strstr(text, ".entry tap_leaf("))
        return 218; /* not a text that a device takes */
    int result = taken(fails());
    *module = result ? NULL : &the_module;
    return result;
}

int cuModuleUnload(void *module)
{
    return module == &the_module ? given_back() : 1;
}

int cuModuleGetFunction(void **function, void *module, const char *name)
{
    if (fails())
        return MADE_TO_FAIL;
    *function = !strcmp(name, "tap_gate") ? &gate_function : !strcmp(name, "tap_leaf") ? &leaf_function : NULL;
    return module == &the_module && *function ? 0 : 500;
}

int cuLaunchKernel(void *function, unsigned blocks, unsigned blocks_y, unsigned blocks_z, unsigned threads, unsigned threads_y,
                   unsigned threads_z, unsigned shared_bytes, struct fake_stream *s, void **arguments, void **extra)
{
    if (!blocks || blocks_y != 1 || blocks_z != 1 || !threads || threads_y != 1 || threads_z != 1 || shared_bytes || extra)
        return 1;
    if (fails())
        return MADE_TO_FAIL;
    work *node = calloc(1, sizeof *node);
    node->kind = function == &gate_function ? GATE : LEAF;
    node->blocks = blocks;
    node->threads = threads > 2 ? 2 : threads; /* a block of any size gives the same, and threads of the host are dear */
    if (node->kind == GATE)
        memcpy(&node->gate, arguments[0], sizeof node->gate);
    else
        memcpy(&node->leaf, arguments[0], sizeof node->leaf);
    return submit(s, node);
}
