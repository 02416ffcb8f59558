/* blas.c - see blas.h. The Fortran interface is column-major, so a row-major product is asked for as its transpose. */
#include "engine/blas.h"

#include "engine/onednn.h"

#include <dlfcn.h>
#include <pthread.h>

typedef void (*fortran_gemm)(const char *ta, const char *tb, const int *m, const int *n, const int *k,
                             const void *alpha, const void *a, const int *lda, const void *b, const int *ldb,
                             const void *beta, void *c, const int *ldc);

static struct {
    fortran_gemm s, d, c, z;
    int (*mkl_threads)(int);
    int (*omp_get)(void);
    void (*omp_set)(int);
} found;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* A library that Python loaded is not among the global symbols, so those known to carry BLAS are asked by name too;
 * none is loaded that is not there already. */
static void *find(const char *symbol)
{
    static const char *const CARRIERS[] = {"libtorch_cpu.so", "libmkl_rt.so.2", "libopenblas.so.0", "libblas.so.3"};
    void *address = dlsym(RTLD_DEFAULT, symbol);
    for (size_t i = 0; i < sizeof CARRIERS / sizeof CARRIERS[0] && !address; i++) {
        void *library = dlopen(CARRIERS[i], RTLD_NOW | RTLD_NOLOAD);
        if (!library)
            continue;
        address = dlsym(library, symbol);
        dlclose(library);
    }
    return address;
}

static void find_all(void)
{
    tap__dnn(); /* brings an OpenMP runtime along where the process has none */
    *(void **)&found.s = find("sgemm_");
    *(void **)&found.d = find("dgemm_");
    *(void **)&found.c = find("cgemm_");
    *(void **)&found.z = find("zgemm_");
    *(void **)&found.mkl_threads = find("MKL_Set_Num_Threads_Local");
    void *omp = dlopen("libgomp.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!omp)
        return;
    *(void **)&found.omp_get = dlsym(omp, "omp_get_max_threads");
    *(void **)&found.omp_set = dlsym(omp, "omp_set_num_threads");
}

static void call_fortran(fortran_gemm gemm, bool ta, bool tb, int64_t m, int64_t n, int64_t k, const void *alpha,
                         const void *a, int64_t lda, const void *b, int64_t ldb, const void *beta, void *c,
                         int64_t ldc)
{
    int im = (int)m, in = (int)n, ik = (int)k, ia = (int)lda, ib = (int)ldb, ic = (int)ldc;
    gemm(tb ? "T" : "N", ta ? "T" : "N", &in, &im, &ik, alpha, b, &ib, a, &ia, beta, c, &ic);
}

#define GEMM(name)                                                                                                   \
    static void gemm_##name(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const void *alpha, const void *a,     \
                            int64_t lda, const void *b, int64_t ldb, const void *beta, void *c, int64_t ldc)         \
    {                                                                                                                \
        call_fortran(found.name, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);                              \
    }
GEMM(s)
GEMM(d)
GEMM(c)
GEMM(z)

static void gemm_onednn(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const void *alpha, const void *a,
                        int64_t lda, const void *b, int64_t ldb, const void *beta, void *c, int64_t ldc)
{
    tap__dnn()->sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, *(const float *)alpha, a, lda, b, ldb,
                      *(const float *)beta, c, ldc);
}

tap__gemm_fn tap__gemm(tap_dtype dtype)
{
    pthread_once(&once, find_all);
    switch ((int)dtype) {
    case TAP_F32: return tap__dnn() ? gemm_onednn : found.s ? gemm_s : NULL;
    case TAP_F64: return found.d ? gemm_d : NULL;
    case TAP_C64: return found.c ? gemm_c : NULL;
    case TAP_C128: return found.z ? gemm_z : NULL;
    default: return NULL;
    }
}

/* MKL keeps a number of its own per thread (0: none set); everybody else asks OpenMP. */
tap__thread_limit tap__thread_limit_enter(int count)
{
    tap__thread_limit before = {.omp = 0, .blas = 0};
    pthread_once(&once, find_all);
    if (found.omp_get && found.omp_set) {
        before.omp = found.omp_get();
        if (before.omp != count)
            found.omp_set(count);
    }
    if (found.mkl_threads)
        before.blas = found.mkl_threads(count);
    return before;
}

void tap__thread_limit_leave(tap__thread_limit before)
{
    if (before.omp > 0 && before.omp != found.omp_get())
        found.omp_set(before.omp);
    if (found.mkl_threads)
        found.mkl_threads(before.blas);
}
