/* main.c - the command tensortap: finds the subcommand, sets up language, terminal and log, and ends as documented. */
#include "cli.h"
#include "private/writer_main.h"
#include "term.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void say(FILE *to, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vfprintf(to, tap_text(fmt), args);
    va_end(args);
}

static void trouble_begin(const cli_command *command)
{
    progress_clear();
    fflush(stdout);
    fputs("tensortap", stderr);
    if (command)
        fprintf(stderr, " %s", command->name);
    fputs(": ", stderr);
}

/* What was given on the command line or stands in a recording may hold anything. */
static void print_escaped(const char *fmt, va_list list)
{
    char text[8192];
    if (!strchr(fmt, '%')) { /* also when there is no memory to escape with */
        fputs(tap_text(fmt), stderr);
        return;
    }
    vsnprintf(text, sizeof text, tap_text(fmt), list);
    fputs(text_shown(text), stderr);
}

int trouble(const cli *args, const char *fmt, ...)
{
    trouble_begin(args ? args->command : NULL);
    va_list list;
    va_start(list, fmt);
    print_escaped(fmt, list);
    va_end(list);
    fputc('\n', stderr);
    return EXIT_TROUBLE;
}

int trouble_error(const cli *args, const tap_error *err)
{
    trouble_begin(args->command);
    const char *hint = tap_status_hint(err->status);
    /* "no such file" and "expected a number" need no advice; other messages may bring their own */
    bool advise = err->status != TAP_E_INVALID && err->status != TAP_E_NOTFOUND && !strchr(err->message, ';') &&
                  !strstr(err->message, "；");
    fputs(text_shown(err->message), stderr);
    if (advise && *hint)
        fprintf(stderr, "; %s", hint);
    fputc('\n', stderr);
    return EXIT_TROUBLE;
}

int trouble_usage(const cli_command *command, const char *fmt, ...)
{
    trouble_begin(command);
    va_list list;
    va_start(list, fmt);
    print_escaped(fmt, list);
    va_end(list);
    fputc('\n', stderr);
    if (command) {
        usage_line(command, stderr);
        say(stderr, "more: tensortap help %s\n", command->name);
    } else {
        say(stderr, "more: tensortap help\n");
    }
    return EXIT_TROUBLE;
}

void *get_memory(void *old, size_t size)
{
    void *memory = realloc(old, size ? size : 1);
    if (!memory) {
        trouble(NULL, "out of memory");
        exit(EXIT_TROUBLE);
    }
    return memory;
}

char *copy_text(const char *text, size_t len)
{
    char *copy = get_memory(NULL, len + 1);
    memcpy(copy, text, len);
    copy[len] = 0;
    return copy;
}

/* What the library has to say: warnings and worse. */
static void log_print(void *user, tap_log_level level, const char *message)
{
    (void)user;
    if (level < TAP_LOG_WARNING)
        return;
    progress_clear();
    fprintf(stderr, "tensortap: %s\n", text_shown(message));
}

int command_unknown(const char *given)
{
    const char *best = NULL;
    size_t best_distance = 3;
    for (const cli_command *row = CLI_COMMANDS; row->name; row++) {
        size_t distance = edit_distance(given, row->name);
        if (strlen(given) >= 2 && strncmp(row->name, given, strlen(given)) == 0)
            distance = 1;
        if (distance < best_distance && distance < strlen(row->name)) {
            best = row->name;
            best_distance = distance;
        }
    }
    if (best)
        return trouble_usage(NULL, "unknown subcommand %s; did you mean %s?", text_shown(given), best);
    return trouble_usage(NULL, "unknown subcommand %s", text_shown(given));
}

static int command_run(const cli_command *command, int argc, char **argv)
{
    cli args;
    int status = args_parse(&args, command, argc, argv);
    if (!status && args.value[OPT_COLOR])
        term_set_color(args.value[OPT_COLOR]);
    if (!status && args.value[OPT_HELP])
        help_command(command, stdout);
    else if (!status)
        status = command->run(&args);
    args_free(&args);
    return status;
}

/* A reader that left (| head) is no trouble; a disk that is full is. */
static int output_finish(int status)
{
    int failed = fflush(stdout) ? errno : 0;
    if (output_gone() || (!failed && !ferror(stdout)))
        return status;
    if (!failed)
        failed = EIO;
    return trouble(NULL, "cannot write the output: %s", strerror(failed));
}

static int first_word(int argc, char **argv)
{
    if (argc < 2) {
        help_overview(stderr);
        return EXIT_TROUBLE;
    }
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        word = "help";
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0)
        word = "version";
    if (word[0] == '-')
        return trouble_usage(NULL, "%s: expected a subcommand first", text_shown(word));
    const cli_command *command = command_find(word);
    return command ? command_run(command, argc - 2, argv + 2) : command_unknown(word);
}

int main(int argc, char **argv)
{
    /* the writer must start before anything of a command line is set up: it lives on without one */
    if (argc == 5 && strcmp(argv[1], "__writer") == 0)
        return tap__writer_main(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]));
    output_watch();
    term_setup();
    tap_language_set(NULL);
    tap_log_set(log_print, NULL);
    int status = output_finish(first_word(argc, argv));
    progress_clear();
    return status;
}
