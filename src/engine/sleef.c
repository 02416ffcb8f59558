/* sleef.c - looks for SLEEF's functions: in the process, in the framework's library if that is loaded, then as a
 * library of its own. */
#include "engine/sleef.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *isa, *suffix;
    int floats, doubles; /* in a vector */
} SETS[] = {
    {"avx512", "avx512f", 16, 8},
    {"avx2", "avx2", 8, 4},
    {"neon", "advsimd", 4, 2},
};
enum { SETS_COUNT = sizeof SETS / sizeof SETS[0] };

static const struct {
    const char *name, *accuracy;
} FUNCTIONS[] = {
#define X(name, accuracy) {#name, accuracy},
    TAP_SLEEF_MAP(X)
#undef X
};

static tap__sleef found[SETS_COUNT + 1]; /* the last stays empty */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void *look_up(void *const *libraries, const char *name)
{
    for (int i = 0; i < 3; i++) {
        void *at = i == 0 || libraries[i] ? dlsym(libraries[i], name) : NULL;
        if (at)
            return at;
    }
    return NULL;
}

static void find_all(void)
{
    void *const libraries[] = {RTLD_DEFAULT, dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD),
                               dlopen("libsleef.so.3", RTLD_NOW | RTLD_LOCAL)};
    for (int s = 0; s < SETS_COUNT; s++)
        for (int f = 0; f < TAP_SLEEF_END; f++) {
            char name[64];
            snprintf(name, sizeof name, "Sleef_%sf%d_%s%s", FUNCTIONS[f].name, SETS[s].floats, FUNCTIONS[f].accuracy,
                     SETS[s].suffix);
            found[s].f32[f] = look_up(libraries, name);
            snprintf(name, sizeof name, "Sleef_%sd%d_%s%s", FUNCTIONS[f].name, SETS[s].doubles, FUNCTIONS[f].accuracy,
                     SETS[s].suffix);
            found[s].f64[f] = look_up(libraries, name);
        }
}

const tap__sleef *tap__sleef_find(const char *isa)
{
    pthread_once(&once, find_all);
    for (int s = 0; s < SETS_COUNT; s++)
        if (strcmp(SETS[s].isa, isa) == 0)
            return &found[s];
    return &found[SETS_COUNT];
}
