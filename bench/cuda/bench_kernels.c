/* bench_kernels.c - what the tap kernel costs on a GPU: microseconds a launch, by size and by what it does, beside a copy of the driver's
 * to pinned memory: bench_kernels [BLOCKS]. Prints one line a row; needs a GPU. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device/leaf.h"
#include "device/program.h"

static void *library;
static tap_program program;
static char *device_data, *device_room, *host_room;
static const size_t MOST = 256u << 20;
static unsigned blocks_asked; /* 0: as many as the library takes */

static int (*event_record)(void *, void *), (*event_wait)(void *), (*event_ms)(float *, void *, void *);
static int (*copy_down)(void *, const void *, size_t, void *);
static void *from, *to;

static void *symbol(const char *name)
{
    void *at = dlsym(library, name);
    if (!at) {
        printf("the driver lacks %s\n", name);
        exit(1);
    }
    return at;
}

static void must(int result, const char *what)
{
    if (result) {
        printf("%s: CUDA error %d\n", what, result);
        exit(1);
    }
}

#define FIND(pointer, name) memcpy(&(pointer), &(void *){symbol(name)}, sizeof(pointer))
#define CALL(name, types, ...)                                                                                       \
    do {                                                                                                             \
        int(*call) types;                                                                                            \
        FIND(call, name);                                                                                            \
        must(call(__VA_ARGS__), name);                                                                               \
    } while (0)

static void start(void)
{
    void *context;
    int device;
    tap_error err;
    CALL("cuInit", (unsigned), 0);
    CALL("cuDeviceGet", (int *, int), &device, 0);
    CALL("cuDevicePrimaryCtxRetain", (void **, int), &context, device);
    CALL("cuCtxSetCurrent", (void *), context);
    CALL("cuMemAlloc_v2", (char **, size_t), &device_data, MOST);
    CALL("cuMemsetD8_v2", (void *, unsigned char, size_t), device_data, 1, MOST);
    CALL("cuMemAlloc_v2", (char **, size_t), &device_room, 1 << 20);
    CALL("cuMemsetD8_v2", (void *, unsigned char, size_t), device_room, 0, 1 << 20);
    CALL("cuMemHostAlloc", (char **, size_t, unsigned), &host_room, MOST + 8192, 3);
    CALL("cuEventCreate", (void **, unsigned), &from, 0);
    CALL("cuEventCreate", (void **, unsigned), &to, 0);
    FIND(event_record, "cuEventRecord");
    FIND(event_wait, "cuEventSynchronize");
    FIND(event_ms, "cuEventElapsedTime");
    FIND(copy_down, "cuMemcpyDtoHAsync_v2");
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    if (tap__program_load(&program, &err)) {
        printf("%s\n", err.message);
        exit(1);
    }
    clock_gettime(CLOCK_MONOTONIC, &after);
    printf("loading the kernels took %.0f ms\n",
           (double)(after.tv_sec - before.tv_sec) * 1e3 + (double)(after.tv_nsec - before.tv_nsec) * 1e-6);
}

static void leaf(tap_dtype dtype, size_t bytes, unsigned what)
{
    int64_t count = (int64_t)(bytes / tap_dtype_describe(dtype)->bytes);
    tap_k_tap tap;
    memset(&tap, 0, sizeof tap);
    tap__leaf_view(&tap, &(tap_tensor){device_data, dtype, 1, &count, NULL}, NULL);
    tap.room = (tap_k_room){.headers = (tap_k_header *)(void *)host_room, .header_count = 1, .payload = host_room + 8192,
                            .payload_bytes = MOST};
    tap.group = (tap_k_group *)(void *)(device_room + 1024);
    tap.partial = (tap_k_sums *)(void *)(device_room + 4096);
    tap.arrived = (unsigned *)(void *)(device_room + 2048);
    tap.what = what;
    unsigned blocks = tap__leaf_blocks(bytes);
    if (blocks > 1 && blocks_asked)
        blocks = blocks_asked;
    must(tap__program_leaf(&program, NULL, &tap, blocks, tap__leaf_threads(bytes), NULL), "launch");
}

static double measure(tap_dtype dtype, size_t bytes, unsigned what, int times)
{
    float ms = 0;
    for (int round = 0; round < 2; round++) { /* the first warms up */
        event_record(from, NULL);
        for (int i = 0; i < times; i++)
            if (what)
                leaf(dtype, bytes, what);
            else
                copy_down(host_room + 8192, device_data, bytes, NULL);
        event_record(to, NULL);
        must(event_wait(to), "cuEventSynchronize");
        event_ms(&ms, from, to);
    }
    return (double)ms * 1000 / times;
}

int main(int argc, char **argv)
{
    static const size_t SIZES[] = {1 << 10, 1 << 20, 256u << 20};
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        printf("no CUDA driver here: nothing was measured\n");
        return 77;
    }
    blocks_asked = argc > 1 ? (unsigned)atoi(argv[1]) : 0;
    start();
    static const tap_k_group group = {.state = TAP_K_WHOLE};
    CALL("cuMemcpyHtoD_v2", (void *, const void *, size_t), device_room + 1024, &group, sizeof group);
    printf("%-10s %10s %12s %12s %12s\n", "dtype", "bytes", "stats us", "snapshot us", "DtoH us");
    for (size_t i = 0; i < sizeof SIZES / sizeof SIZES[0]; i++)
        for (int d = 0; d < 4; d++) {
            tap_dtype dtype = (tap_dtype[]){TAP_F32, TAP_BF16, TAP_F64, TAP_I64}[d];
            int times = SIZES[i] > 1 << 20 ? 20 : 500;
            printf("%-10s %10zu %12.1f %12.1f %12.1f\n", tap_dtype_describe(dtype)->name, SIZES[i],
                   measure(dtype, SIZES[i], TAP_K_STATS | TAP_K_HASH, times),
                   measure(dtype, SIZES[i], TAP_K_STATS | TAP_K_HASH | TAP_K_COPY, times), measure(dtype, SIZES[i], 0, times));
        }
    return 0;
}
