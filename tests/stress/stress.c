/* stress.c - the driver: many cases, one seed each, until the time is over.
 *
 *     stress [seconds=N] [seed=N] [dir=PATH]     cases from that seed on (else from the clock, which is printed)
 *     stress kills=N [seconds=N] [seed=N]        kill -9 at N random moments of each layout, synchronous and not
 *     stress case=SEED [only=1,4,7] [dir=PATH]   one case again, with what the library said
 *
 *     stress record | check | returned ...       for tests/fault, see load.c
 *
 * Exit 0: nothing but what KNOWN says was found. */
#include "stress/stress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SHRINK_RUNS = 24, SHRINK_SECONDS = 60 };

/* What is wrong and known to be, until it is mended. Printed and counted, never left out. */
enum { ANY = -1, NATIVE = 0, OTHERS = -2 /* every layout but the native one */ };
static const struct known {
    int layout, asynchronous, fault, kind;
    const char *what;
} KNOWN[] = {{NATIVE, ANY, FAULT_COUNT, ANY, NULL}}; /* the last row, which nothing matches */
enum { KNOWN_COUNT = sizeof KNOWN / sizeof KNOWN[0] - 1 };
static uint64_t known_hits[KNOWN_COUNT + 1];

typedef struct session {
    char work[512];
    bool no_shrink;
    uint64_t cases, skipped, failed, known;
    uint64_t saves, operations, whole, listed;
    uint64_t faults[FAULT_COUNT];
    struct row {
        uint64_t cases, saves, whole, listed, failed;
    } rows[LAYOUT_COUNT][2]; /* [layout][asynchronous] */
} session;

static uint64_t now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec;
}

static int known_row(const plan *p, finding_kind kind)
{
    for (int i = 0; i < KNOWN_COUNT; i++) {
        const struct known *k = &KNOWN[i];
        bool layout = k->layout == ANY || k->layout == p->layout || (k->layout == OTHERS && p->layout != NATIVE);
        if (layout && (k->asynchronous == ANY || k->asynchronous == p->asynchronous) &&
            (k->fault == ANY || k->fault == (int)p->fault) && (k->kind == ANY || k->kind == (int)kind))
            return i;
    }
    return -1;
}

/* How many findings of a case are new ones; those of KNOWN are counted. */
static uint32_t count_new(const plan *p, const findings *found, bool count_known)
{
    uint32_t fresh = 0, kept = found->count < FINDINGS_KEPT ? found->count : FINDINGS_KEPT;
    for (uint32_t i = 0; i < kept; i++) {
        int row = known_row(p, found->items[i].kind);
        if (row < 0)
            fresh++;
        else if (count_known)
            known_hits[row]++;
    }
    return fresh;
}

static findings *findings_map(void)
{
    findings *f = mmap(NULL, sizeof *f, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (f == MAP_FAILED) {
        perror("stress");
        exit(2);
    }
    return f;
}

static void print_findings(const findings *found)
{
    uint32_t kept = found->count < FINDINGS_KEPT ? found->count : FINDINGS_KEPT;
    for (uint32_t i = 0; i < kept; i++)
        printf("  %s: %s\n", FINDING_TEXTS[found->items[i].kind], found->items[i].text);
    if (found->count > kept)
        printf("  and %u more\n", found->count - kept);
}

static bool fails(const session *s, const plan *p, uint64_t enabled)
{
    findings *found = findings_map();
    case_run(p, enabled, s->work, found, false);
    bool bad = count_new(p, found, false) > 0;
    munmap(found, sizeof *found);
    return bad;
}

/* Without its opens and closes a plan is another plan. */
static uint64_t kept_operations(const plan *p)
{
    uint64_t kept = 0;
    for (int i = 0; i < p->count; i++)
        if (p->ops[i].kind == OP_OPEN || p->ops[i].kind == OP_CLOSE)
            kept |= 1ull << i;
    return kept;
}

/* Leaves operations out one half, quarter, ... after the other, as long as the case still fails. */
static uint64_t shrink(const session *s, const plan *p)
{
    uint64_t enabled = p->count < 64 ? (1ull << p->count) - 1 : ~0ull, start = now_s();
    int runs = 0;
    for (int size = p->count / 2; size >= 1; size /= 2)
        for (int at = 1; at < p->count && runs < SHRINK_RUNS && now_s() - start < SHRINK_SECONDS; at += size) {
            uint64_t part = ((1ull << size) - 1) << at & enabled & ~kept_operations(p);
            if (!part)
                continue;
            runs++;
            if (fails(s, p, enabled & ~part))
                enabled &= ~part;
        }
    return enabled;
}

static void print_only(const plan *p, uint64_t enabled)
{
    const char *comma = "";
    printf("  the same with less: case=%llu only=", (unsigned long long)p->seed);
    for (int i = 0; i < p->count; i++)
        if (enabled >> i & 1) {
            printf("%s%d", comma, i);
            comma = ",";
        }
    printf("\n");
}

static void one_case(session *s, uint64_t seed)
{
    plan p;
    plan_make(&p, seed);
    findings *found = findings_map();
    case_run(&p, ~0ull, s->work, found, false);
    s->cases++;
    s->skipped += found->skipped;
    if (found->skipped && s->faults[p.fault]++ == 0)
        printf("not here: %s\n", found->items[0].text);
    s->faults[p.fault]++;
    struct row *row = &s->rows[p.layout][p.asynchronous];
    row->cases++;
    row->saves += found->saves;
    row->whole += found->whole;
    row->listed += found->listed;
    s->saves += found->saves;
    s->operations += found->operations;
    s->whole += found->whole;
    s->listed += found->listed;
    uint32_t fresh = count_new(&p, found, true);
    s->known += found->count > 0 && !fresh;
    if (fresh) {
        row->failed++;
        s->failed++;
        printf("case=%llu FAILED\n", (unsigned long long)seed);
        plan_print(&p);
        print_findings(found);
        fflush(stdout);
        if (!s->no_shrink)
            print_only(&p, shrink(s, &p));
    }
    munmap(found, sizeof *found);
    fflush(stdout);
}

static void print_end(const session *s, uint64_t seconds)
{
    printf("%llu cases in %llu s: %llu operations, %llu saves, %llu found whole, %llu listed as lost; %llu failed, %llu "
           "with only known findings, %llu not possible here\n", (unsigned long long)s->cases,
           (unsigned long long)seconds, (unsigned long long)s->operations, (unsigned long long)s->saves,
           (unsigned long long)s->whole, (unsigned long long)s->listed, (unsigned long long)s->failed,
           (unsigned long long)s->known, (unsigned long long)s->skipped);
    for (int i = 0; i < KNOWN_COUNT; i++)
        if (known_hits[i])
            printf("known: %s: %llu times\n", KNOWN[i].what, (unsigned long long)known_hits[i]);
}

static void print_rows(const session *s)
{
    for (int layout = 0; layout < LAYOUT_COUNT; layout++)
        for (int later = 0; later < 2; later++) {
            const struct row *row = &s->rows[layout][later];
            printf("%-15s %-12s %6llu kills, %8llu saves had returned; found whole %llu and listed as lost %llu in two "
                   "looks; %llu failed\n", LAYOUT_NAMES[layout], later ? "asynchronous" : "synchronous",
                   (unsigned long long)row->cases, (unsigned long long)row->saves / 2, (unsigned long long)row->whole,
                   (unsigned long long)row->listed, (unsigned long long)row->failed);
        }
}

/* Seeds one after the other until the time is over, or `most` cases. */
static int many(session *s, uint64_t seed, uint64_t seconds, uint64_t most)
{
    uint64_t start = now_s();
    printf("stress: seed=%llu\n", (unsigned long long)seed);
    for (uint64_t n = 0; n < most && now_s() - start < seconds; n++)
        one_case(s, seed + n);
    print_end(s, now_s() - start);
    if (seed >= KILL_CASES)
        print_rows(s);
    return s->failed ? 1 : 0;
}

static uint64_t enabled_of(const char *list)
{
    uint64_t enabled = 0;
    for (char *end; *list; list = *end ? end + 1 : end)
        enabled |= 1ull << (strtoul(list, &end, 10) & 63);
    return enabled;
}

static int replay(session *s, uint64_t seed, uint64_t enabled)
{
    plan p;
    plan_make(&p, seed);
    printf("case=%llu\n", (unsigned long long)seed);
    plan_print(&p);
    fflush(stdout);
    findings *found = findings_map();
    case_run(&p, enabled, s->work, found, true);
    print_findings(found);
    printf("%u findings; %llu saves, %llu times found whole, %llu listed as lost\n", found->count,
           (unsigned long long)found->saves, (unsigned long long)found->whole, (unsigned long long)found->listed);
    return found->count ? 1 : 0;
}

int main(int argc, char **argv)
{
    if (argc > 2 && !strchr(argv[1], '='))
        return load_main(argc, argv);
    static session s;
    uint64_t seconds = 0, seed = (uint64_t)time(NULL), again = 0, kills = 0, enabled = ~0ull;
    const char *dir = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    for (int i = 1; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (!value)
            return 2;
        if (!strncmp(argv[i], "seconds=", 8)) seconds = strtoull(value + 1, NULL, 10);
        else if (!strncmp(argv[i], "seed=", 5)) seed = strtoull(value + 1, NULL, 10);
        else if (!strncmp(argv[i], "kills=", 6)) kills = strtoull(value + 1, NULL, 10);
        else if (!strncmp(argv[i], "case=", 5)) again = strtoull(value + 1, NULL, 10);
        else if (!strncmp(argv[i], "only=", 5)) enabled = enabled_of(value + 1);
        else if (!strncmp(argv[i], "dir=", 4)) dir = value + 1;
        else if (!strncmp(argv[i], "shrink=", 7)) s.no_shrink = value[1] == '0';
        else return 2;
    }
    snprintf(s.work, sizeof s.work, "%s/tensortap-stress-XXXXXX", dir);
    if (!mkdtemp(s.work)) {
        perror(s.work);
        return 2;
    }
    int result;
    if (again)
        result = replay(&s, again, enabled);
    else if (kills) /* a seed for ordinary cases will do: each round of them begins with the first layout */
        result = many(&s, KILL_CASES + seed % 100000000u * LAYOUT_COUNT * 2, seconds ? seconds : UINT64_MAX,
                      kills * LAYOUT_COUNT * 2);
    else
        result = many(&s, seed, seconds ? seconds : 60, UINT64_MAX);
    rmdir(s.work);
    return result;
}
