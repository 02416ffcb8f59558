/* args.c - takes a command line apart by the option table of its subcommand, and says what is wrong with it. */
#include "cli.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

size_t edit_distance(const char *a, const char *b)
{
    size_t len_a = strlen(a), len_b = strlen(b);
    size_t *row = get_memory(NULL, (len_b + 1) * sizeof *row);
    for (size_t j = 0; j <= len_b; j++)
        row[j] = j;
    for (size_t i = 1; i <= len_a; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= len_b; j++) {
            size_t above = row[j], cost = diagonal + (a[i - 1] != b[j - 1]);
            if (above + 1 < cost)
                cost = above + 1;
            if (row[j - 1] + 1 < cost)
                cost = row[j - 1] + 1;
            diagonal = above;
            row[j] = cost;
        }
    }
    size_t distance = row[len_b];
    free(row);
    return distance;
}

static const cli_option *option_by_name(const cli_command *command, const char *name, size_t len)
{
    for (const cli_option *row = command->options; row->id; row++)
        if (strlen(row->name) == len && memcmp(row->name, name, len) == 0)
            return row;
    return NULL;
}

static const cli_option *option_by_letter(const cli_command *command, char letter)
{
    for (const cli_option *row = command->options; row->id; row++)
        if (row->letter == letter)
            return row;
    return NULL;
}

static int option_unknown(const cli_command *command, const char *given)
{
    const char *best = NULL;
    size_t best_distance = 3; /* further off is a guess */
    for (const cli_option *row = command->options; row->id; row++) {
        size_t distance = edit_distance(given, row->name);
        bool begins = strlen(given) >= 2 && strncmp(row->name, given, strlen(given)) == 0;
        if (begins)
            distance = 1;
        if (distance < best_distance && distance < strlen(row->name)) {
            best = row->name;
            best_distance = distance;
        }
    }
    if (best)
        return trouble_usage(command, "unknown option --%s; did you mean --%s?", given, best);
    return trouble_usage(command, "unknown option --%s", given);
}

static bool choice_has(const char *choices, const char *value)
{
    size_t len = strlen(value);
    for (const char *at = choices; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL)
        if (strncmp(at, value, len) == 0 && (at[len] == '|' || at[len] == 0))
            return len > 0;
    return false;
}

static bool is_number(const char *text)
{
    char *end;
    errno = 0;
    strtoll(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == 0 && errno == 0;
}

static bool is_seconds(const char *text)
{
    char *end;
    double seconds = strtod(text, &end);
    return *text && *end == 0 && isfinite(seconds) && seconds >= 0 && seconds < 2e6;
}

static int value_check(const cli_command *command, const cli_option *option, const char *value)
{
    switch (option->kind) {
    case VALUE_NUMBER:
        if (!is_number(value))
            return trouble_usage(command, "--%s %s: expected a whole number, 0 or more", option->name, value);
        break;
    case VALUE_SECONDS:
        if (!is_seconds(value))
            return trouble_usage(command, "--%s %s: expected seconds, such as 60 or 0.5", option->name, value);
        break;
    case VALUE_ATTEMPT:
        if (!is_number(value) && strcmp(value, "all") != 0)
            return trouble_usage(command, "--%s %s: expected the number of an attempt, or all", option->name, value);
        break;
    case VALUE_CHOICE:
        if (!choice_has(option->choices, value))
            return trouble_usage(command, "--%s %s: expected one of %s", option->name, value, option->choices);
        break;
    case VALUE_FLAG:
    case VALUE_TEXT: break;
    }
    return EXIT_FINE;
}

/* What stands between the values of an option that may be repeated; 0: the last one counts. */
static char repeat_sign(cli_option_id id)
{
    static const struct {
        cli_option_id id;
        char sign;
    } SIGNS[] = {{OPT_NAME, '|'}, {OPT_ALLOW, '|'}, {OPT_TOL, '\n'}, {OPT_NOISE, '\n'}};
    for (size_t i = 0; i < sizeof SIGNS / sizeof SIGNS[0]; i++)
        if (SIGNS[i].id == id)
            return SIGNS[i].sign;
    return 0;
}

static int option_set(cli *args, const cli_option *option, const char *value)
{
    int bad = value_check(args->command, option, value);
    if (bad)
        return bad;
    const char *before = args->value[option->id];
    char between = repeat_sign(option->id);
    if (between && before) {
        size_t len = strlen(before), more = strlen(value);
        char *both = get_memory(NULL, len + more + 2);
        memcpy(both, before, len);
        both[len] = between;
        memcpy(both + len + 1, value, more + 1);
        free(args->joined[option->id]);
        value = args->joined[option->id] = both;
    }
    args->value[option->id] = value;
    return EXIT_FINE;
}

/* "--name", "--name=value" or "--name" "value"; *used counts the words. */
static int long_option(cli *args, char **argv, int argc, int *used)
{
    const char *name = argv[0] + 2, *equals = strchr(name, '=');
    size_t len = equals ? (size_t)(equals - name) : strlen(name);
    const cli_option *option = option_by_name(args->command, name, len);
    if (!option) {
        char *given = copy_text(name, len);
        int status = option_unknown(args->command, given);
        free(given);
        return status;
    }
    if (option->kind == VALUE_FLAG) {
        if (equals)
            return trouble_usage(args->command, "--%s takes no value", option->name);
        return option_set(args, option, "");
    }
    if (equals)
        return option_set(args, option, equals + 1);
    if (argc < 2)
        return trouble_usage(args->command, "--%s needs a value: --%s %s", option->name, option->name,
                             option->argument);
    *used = 2;
    return option_set(args, option, argv[1]);
}

/* "-l", "-lf", "-n GLOB", "-nGLOB". */
static int short_options(cli *args, char **argv, int argc, int *used)
{
    for (const char *at = argv[0] + 1; *at; at++) {
        const cli_option *option = option_by_letter(args->command, *at);
        if (!option)
            return trouble_usage(args->command, "unknown option -%.*s", (int)strcspn(at, "= "), at);
        if (option->kind == VALUE_FLAG) {
            int status = option_set(args, option, "");
            if (status)
                return status;
            continue;
        }
        if (at[1])
            return option_set(args, option, at + 1);
        if (argc < 2)
            return trouble_usage(args->command, "-%c needs a value: -%c %s", *at, *at, option->argument);
        *used = 2;
        return option_set(args, option, argv[1]);
    }
    return EXIT_FINE;
}

static int arguments_check(const cli *args)
{
    for (int i = 0; i < CLI_MAX_ARGUMENTS; i++) {
        const cli_argument *row = &args->command->arguments[i];
        const char *given = args->argument[i];
        if (row->name && !row->optional && !given)
            return trouble_usage(args->command, "%s is missing", row->name);
        if (given && row->choices && !choice_has(row->choices, given))
            return trouble_usage(args->command, "%s: expected one of %s", given, row->choices);
    }
    return EXIT_FINE;
}

static int argument_add(cli *args, const char *word)
{
    int i = args->argument_count;
    if (i == CLI_MAX_ARGUMENTS || !args->command->arguments[i].name)
        return trouble_usage(args->command, "%s: one argument too many", word);
    args->argument[i] = word;
    args->argument_count++;
    return EXIT_FINE;
}

int args_parse(cli *args, const cli_command *command, int argc, char **argv)
{
    *args = (cli){.command = command};
    bool options_end = false;
    for (int i = 0; i < argc;) {
        int used = 1, status;
        char *word = argv[i];
        if (!options_end && strcmp(word, "--") == 0) {
            options_end = true;
            status = EXIT_FINE;
        } else if (!options_end && strncmp(word, "--", 2) == 0) {
            status = long_option(args, argv + i, argc - i, &used);
        } else if (!options_end && word[0] == '-' && word[1]) {
            status = short_options(args, argv + i, argc - i, &used);
        } else {
            status = argument_add(args, word);
        }
        if (status)
            return status;
        i += used;
    }
    args->json = args->value[OPT_JSON] != NULL;
    return args->value[OPT_HELP] ? EXIT_FINE : arguments_check(args);
}

void args_free(cli *args)
{
    for (int id = 0; id < OPT_COUNT; id++)
        free(args->joined[id]);
}

int64_t args_number(const cli *args, cli_option_id id, int64_t otherwise)
{
    return args->value[id] ? strtoll(args->value[id], NULL, 10) : otherwise;
}
