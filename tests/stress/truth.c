/* truth.c - the expected state: fixed records in a shared mapping, so that it survives whoever is killed. */
#include "stress/stress.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

truth *truth_map(const char *path, bool create)
{
    int fd = path ? open(path, O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0), 0640) : -1;
    struct stat st;
    if (path && (fd < 0 || fstat(fd, &st) != 0))
        return NULL;
    /* one that was made large before, by somebody without a limit on sizes, will do */
    if (path && create && st.st_size < (off_t)sizeof(truth) && ftruncate(fd, sizeof(truth)) != 0)
        return NULL;
    int flags = path ? MAP_SHARED : MAP_SHARED | MAP_ANONYMOUS;
    truth *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (fd >= 0)
        close(fd);
    if (t == MAP_FAILED)
        return NULL;
    for (int r = 0; create && r < MAX_RANKS; r++) {
        t->ranks[r].close_status = t->ranks[r].flush_status = t->ranks[r].open_status = -1;
        t->ranks[r].op = -1;
    }
    return t;
}

void truth_unmap(truth *t)
{
    munmap(t, sizeof *t);
}

uint32_t truth_begin(truth *t, const truth_record *like, const uint32_t *elements, uint32_t leaves)
{
    uint32_t first = atomic_fetch_add(&t->next, leaves);
    if (first + leaves > TRUTH_RECORDS)
        _exit(99);
    for (uint32_t i = 0; i < leaves; i++) {
        truth_record *r = &t->records[first + i];
        r->base = like->flags & TRUTH_GRAD ? like->base : first;
        r->leaves = leaves;
        r->elements = elements[i];
        r->rank = like->rank;
        r->run = like->run;
        r->flags = like->flags;
        r->thread = like->thread;
        r->step = like->step;
        atomic_store(&r->state, TRUTH_BEGUN);
    }
    return first;
}

void truth_end(truth *t, uint32_t first, uint32_t leaves, tap_status status)
{
    for (uint32_t i = 0; i < leaves; i++) {
        t->records[first + i].status = (int32_t)status;
        atomic_store(&t->records[first + i].state, TRUTH_RETURNED);
    }
}

int32_t truth_value(uint32_t number, uint32_t at)
{
    return at ? (int32_t)((number + 1) * 2654435761u ^ at * 40503u) : (int32_t)number;
}

void finding_add(findings *all, finding_kind kind, const char *format, ...)
{
    uint32_t at = atomic_fetch_add(&all->count, 1);
    if (at >= FINDINGS_KEPT)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(all->items[at].text, sizeof all->items[at].text, format, arguments);
    va_end(arguments);
    all->items[at].kind = kind;
}

uint64_t dice_roll(uint64_t *state, uint64_t below)
{
    uint64_t x = *state += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return below ? (x ^ x >> 31) % below : 0;
}
