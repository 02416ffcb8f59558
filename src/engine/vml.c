/* vml.c - looks for MKL's functions: in the process, and in the framework's library if that is loaded. */
#include "engine/vml.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const NAMES[] = {
#define X(insn, name) #name,
    TAP_VML_MAP(X)
#undef X
};

static tap__vml found;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool is_wanted(void)
{
    const char *said = getenv("TENSORTAP_VML");
    if (said && *said)
        return *said != '0';
#if defined(__x86_64__)
    return __builtin_cpu_is("intel");
#else
    return false;
#endif
}

static const void *look_up(void *library, char type, const char *function)
{
    char name[32];
    snprintf(name, sizeof name, "vm%c%s", type, function);
    const void *at = dlsym(RTLD_DEFAULT, name);
    return at || !library ? at : dlsym(library, name);
}

static void find_all(void)
{
    if (!is_wanted())
        return;
    void *library = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
    for (int f = 0; f < TAP_VML_END; f++) {
        found.f32[f] = look_up(library, 's', NAMES[f]);
        found.f64[f] = look_up(library, 'd', NAMES[f]);
    }
}

const tap__vml *tap__vml_find(void)
{
    pthread_once(&once, find_all);
    return &found;
}
