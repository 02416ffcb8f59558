/* term.c - what stdout and stderr are, how wide text is on them, and the progress bar. */
#include "term.h"

#include "cli.h"

#include <langinfo.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

static struct {
    bool terminal, error_terminal, color, utf8, widths;
} term;

static bool environment_has(const char *name)
{
    const char *value = getenv(name);
    return value && *value;
}

static bool color_wanted(void)
{
    const char *kind = getenv("TERM");
    return term.terminal && !environment_has("NO_COLOR") && !(kind && strcmp(kind, "dumb") == 0);
}

void term_setup(void)
{
    setlocale(LC_CTYPE, "");
    term.utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
    /* names are UTF-8 whatever the locale: their width must be known in any */
    term.widths = term.utf8 || setlocale(LC_CTYPE, "C.UTF-8") || setlocale(LC_CTYPE, "en_US.UTF-8");
    term.terminal = isatty(STDOUT_FILENO);
    __fsetlocking(stdout, FSETLOCKING_BYCALLER); /* one thread prints */
    if (!term.terminal)
        setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    term.error_terminal = isatty(STDERR_FILENO);
    term.color = color_wanted();
}

void term_set_color(const char *when)
{
    term.color = strcmp(when, "always") == 0 || (strcmp(when, "auto") == 0 && color_wanted());
}

bool term_utf8(void)
{
    return term.utf8;
}

bool term_is_terminal(void)
{
    return term.terminal;
}

static int columns_of(int fd)
{
    const char *given = getenv("COLUMNS");
    int columns = given ? atoi(given) : 0;
    struct winsize size;
    if (columns <= 0 && ioctl(fd, TIOCGWINSZ, &size) == 0)
        columns = size.ws_col;
    return columns > 0 ? columns : 80;
}

int term_width(void)
{
    return term.terminal ? columns_of(STDOUT_FILENO) : 0;
}

const char *term_style_begin(term_style style)
{
    static const char *const BEGIN[] = {"", "\033[1m", "\033[2m", "\033[31m", "\033[32m", "\033[33m", "\033[36m"};
    return term.color ? BEGIN[style] : "";
}

const char *term_style_end(term_style style)
{
    return term.color && style != STYLE_PLAIN ? "\033[0m" : "";
}

void term_print(FILE *to, term_style style, const char *text)
{
    fprintf(to, "%s%s%s", term_style_begin(style), text, term_style_end(style));
}

/* ---------------------------------------------------------------------------------------------------------- text */

size_t utf8_next(const char *text, uint32_t *code)
{
    static const uint32_t LEAST[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *at = (const unsigned char *)text;
    if (*at < 0x80) {
        *code = *at;
        return *at ? 1 : 0;
    }
    size_t len = *at >= 0xF0 ? 4 : *at >= 0xE0 ? 3 : 2;
    if (*at < 0xC2 || *at > 0xF4)
        return 0;
    uint32_t value = *at & (0xFFu >> (len + 1));
    for (size_t i = 1; i < len; i++) {
        if ((at[i] & 0xC0) != 0x80)
            return 0;
        value = value << 6 | (at[i] & 0x3Fu);
    }
    if (value < LEAST[len] || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF))
        return 0;
    *code = value;
    return len;
}

/* Without a UTF-8 locale wcwidth knows nothing: the wide blocks, roughly. */
static int width_guess(uint32_t code)
{
    static const uint32_t WIDE[][2] = {{0x1100, 0x115F},   {0x2E80, 0xA4CF},   {0xAC00, 0xD7A3},  {0xF900, 0xFAFF},
                                       {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},  {0x1F300, 0x1F64F},
                                       {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD}};
    for (size_t i = 0; i < sizeof WIDE / sizeof WIDE[0]; i++)
        if (code >= WIDE[i][0] && code <= WIDE[i][1])
            return 2;
    return 1;
}

/* What nobody sees, and marks that turn the direction of text around, could make one name look like another. */
static bool is_hidden(uint32_t code)
{
    static const uint32_t HIDDEN[][2] = {{0xAD, 0xAD},     {0x61C, 0x61C},   {0x115F, 0x1160}, {0x180B, 0x180F},
                                         {0x200B, 0x200F}, {0x2028, 0x202E}, {0x2060, 0x206F}, {0x3164, 0x3164},
                                         {0xFE00, 0xFE0F}, {0xFEFF, 0xFEFF}, {0xFFA0, 0xFFA0}, {0xFFF9, 0xFFFB},
                                         {0xE0000, 0xE0FFF}};
    for (size_t i = 0; i < sizeof HIDDEN / sizeof HIDDEN[0]; i++)
        if (code >= HIDDEN[i][0] && code <= HIDDEN[i][1])
            return true;
    return false;
}

int code_width(uint32_t code)
{
    if (code < 0x20 || (code >= 0x7F && code < 0xA0) || is_hidden(code))
        return -1;
    if (code < 0x7F)
        return 1;
    return term.widths ? wcwidth((wchar_t)code) : width_guess(code);
}

int text_width(const char *text)
{
    int width = 0;
    uint32_t code;
    for (size_t len; *text; text += len) {
        len = utf8_next(text, &code);
        int columns = len ? code_width(code) : 1;
        width += columns > 0 ? columns : 0;
        len = len ? len : 1;
    }
    return width;
}

size_t text_escape(char *dst, const char *text, int *width)
{
    char *out = dst;
    uint32_t code;
    while (*text >= 0x20 && *text < 0x7F) /* most are only that */
        *out++ = *text++;
    if (!*text) {
        *out = 0;
        *width = (int)(out - dst);
        return (size_t)(out - dst);
    }
    for (size_t len; *text; text += len) {
        len = utf8_next(text, &code);
        if (len && code_width(code) >= 0) {
            memcpy(out, text, len);
            out += len;
        } else if (*text == '\n' || *text == '\t' || *text == '\r') {
            *out++ = '\\';
            *out++ = *text == '\n' ? 'n' : *text == '\t' ? 't' : 'r';
        } else {
            len = len ? len : 1;
            for (size_t i = 0; i < len; i++)
                out += sprintf(out, "\\x%02x", (unsigned char)text[i]);
        }
        len = len ? len : 1;
    }
    *out = 0;
    *width = text_width(dst);
    return (size_t)(out - dst);
}

const char *text_shown(const char *text)
{
    static char *buffers[8];
    static unsigned turn;
    char **buffer = &buffers[turn++ % 8];
    *buffer = get_memory(*buffer, strlen(text) * 6 + 1);
    int width;
    text_escape(*buffer, text, &width);
    return *buffer;
}

/* Bytes of the longest beginning that has at most `width` columns. */
static size_t prefix_of(const char *text, int width)
{
    size_t done = 0, len;
    uint32_t code;
    while (text[done]) {
        len = utf8_next(text + done, &code);
        int columns = len ? code_width(code) : 1;
        width -= columns > 0 ? columns : 0;
        if (width < 0)
            break;
        done += len ? len : 1;
    }
    return done;
}

void text_cut_middle(char *dst, const char *text, int width)
{
    int whole = text_width(text);
    if (whole <= width) {
        strcpy(dst, text);
        return;
    }
    const char *mark = term.utf8 ? "…" : "..";
    int mark_width = term.utf8 ? 1 : 2, room = width > mark_width ? width - mark_width : 0;
    int tail = room / 2;
    size_t head_bytes = prefix_of(text, room - tail);
    /* a wide character at the seam may leave one column unused, never one too many */
    const char *rest = text + strlen(text);
    while (rest > text) {
        const char *before = rest - 1;
        while (before > text && ((unsigned char)*before & 0xC0) == 0x80)
            before--;
        if (text_width(before) > tail)
            break;
        rest = before;
    }
    memcpy(dst, text, head_bytes);
    memcpy(dst + head_bytes, mark, strlen(mark));
    strcpy(dst + head_bytes + strlen(mark), rest);
}

/* ------------------------------------------------------------------------------------------------------- progress */

static bool bar_drawn;

uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void progress_start(progress *bar, const char *label, bool bytes)
{
    *bar = (progress){.label = label, .bytes = bytes, .started_ns = clock_ns()};
}

static void amount_text(char *text, size_t size, uint64_t amount, bool bytes)
{
    static const char *const UNITS[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)amount;
    int unit = 0;
    while (bytes && value >= 1024 && unit < 4) {
        value /= 1024;
        unit++;
    }
    if (bytes)
        snprintf(text, size, unit ? "%.1f %s" : "%.0f %s", value, UNITS[unit]);
    else
        snprintf(text, size, "%llu", (unsigned long long)amount);
}

static void bar_draw(const progress *bar, double part, uint64_t done, uint64_t total, double seconds)
{
    enum { CELLS = 24 };
    char now[32], end[32];
    amount_text(now, sizeof now, done, bar->bytes);
    amount_text(end, sizeof end, total, bar->bytes);
    int width = columns_of(STDERR_FILENO), full = (int)(part * CELLS);
    fprintf(stderr, "\r%s %3d%% ", bar->label, (int)(part * 100));
    if (width >= 70) {
        fputs(term.utf8 ? "▕" : "[", stderr);
        for (int i = 0; i < CELLS; i++)
            fputs(i < full ? (term.utf8 ? "█" : "#") : " ", stderr);
        fputs(term.utf8 ? "▏" : "]", stderr);
    }
    fprintf(stderr, " %s / %s", now, end);
    if (part > 0.02 && width >= 80)
        say(stderr, ", %.0f s left", seconds / part - seconds);
    fputs("\033[K", stderr);
    fflush(stderr);
    bar_drawn = true;
}

bool progress_update(progress *bar, uint64_t done, uint64_t total)
{
    if (interrupted())
        return false;
    if (!term.error_terminal)
        return true;
    uint64_t now = clock_ns();
    if (now - bar->started_ns < 1000000000u || now - bar->drawn_ns < 100000000u)
        return true;
    bar->drawn_ns = now;
    double part = total ? (double)done / (double)total : 0;
    bar_draw(bar, part > 1 ? 1 : part, done, total, (double)(now - bar->started_ns) / 1e9);
    return true;
}

bool progress_step(void *user, uint64_t done, uint64_t total)
{
    return progress_update(user, done, total);
}

void progress_clear(void)
{
    if (bar_drawn)
        fputs("\r\033[K", stderr);
    bar_drawn = false;
}

/* ------------------------------------------------------------------------------------------------------ interrupts */

/* How long work that was interrupted may take to come to an end by itself. */
enum { GRACE_S = 2 };
static volatile sig_atomic_t interrupt_seen;

static void interrupt_set(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
}

static void interrupt_end(int number)
{
    sigset_t set;
    interrupt_set(&set);
    signal(number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    raise(number);
}

/* In a thread of its own: the one that works may be held by a file that never answers, and then no handler runs. A second
 * signal does not wait. */
static void *interrupt_watch(void *unused)
{
    sigset_t set;
    int number;
    (void)unused;
    interrupt_set(&set);
    if (sigwait(&set, &number) != 0)
        return NULL;
    interrupt_seen = number;
    sigtimedwait(&set, NULL, &(struct timespec){GRACE_S, 0});
    interrupt_end(number);
    return NULL;
}

void interrupt_catch(void)
{
    sigset_t all, set, before;
    pthread_t thread;
    sigfillset(&all);
    interrupt_set(&set);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool watched = pthread_create(&thread, NULL, interrupt_watch, NULL) == 0;
    if (watched)
        pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (watched) /* else a signal ends the program, as ever */
        pthread_sigmask(SIG_BLOCK, &set, NULL);
}

bool interrupted(void)
{
    return interrupt_seen != 0;
}

void interrupt_finish(void)
{
    if (!interrupt_seen)
        return;
    progress_clear();
    fflush(stdout);
    interrupt_end(interrupt_seen);
}

static volatile sig_atomic_t pipe_broken;

static void pipe_note(int number)
{
    pipe_broken = number;
}

void output_watch(void)
{
    struct sigaction action = {.sa_handler = pipe_note, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGPIPE, &action, NULL);
}

bool output_gone(void)
{
    return pipe_broken && ferror(stdout);
}
