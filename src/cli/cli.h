/* cli.h - what the files of the command share: the tables of subcommands and options, parsed arguments, and how text
 * reaches a person. Everything else comes from the public headers. Results go to stdout, everything said about them to
 * stderr; exit statuses are EXIT_FINE, EXIT_DIFFERENT and EXIT_TROUBLE and nothing else. */
#ifndef TAP_CLI_CLI_H
#define TAP_CLI_CLI_H

#include "tensortap/tensortap.h"

#include <stdio.h>

enum { EXIT_FINE = 0, EXIT_DIFFERENT = 1, EXIT_TROUBLE = 2 };

/* Marks a text of a table that is translated where it is printed. */
#define N_(text) text

/* ------------------------------------------------------------------------------------------ subcommands and options */

typedef enum cli_option_id {
    OPT_NONE = 0,
    OPT_ALL,
    OPT_ALLOW,
    OPT_ATTEMPT,
    OPT_CALL,
    OPT_COLOR,
    OPT_CSV,
    OPT_EXACT,
    OPT_FOLLOW,
    OPT_FORCE,
    OPT_FORMAT,
    OPT_FULL,
    OPT_HELP,
    OPT_JSON,
    OPT_KIND,
    OPT_LANG,
    OPT_LIMIT,
    OPT_LONG,
    OPT_NAME,
    OPT_NOISE,
    OPT_OUTPUT,
    OPT_PRECISION,
    OPT_QUICK,
    OPT_RANK,
    OPT_RULES,
    OPT_STEP,
    OPT_STEPS,
    OPT_THREADS,
    OPT_TIMEOUT,
    OPT_TOL,
    OPT_COUNT
} cli_option_id;

typedef enum cli_value_kind {
    VALUE_FLAG = 0,
    VALUE_TEXT,
    VALUE_NUMBER,  /* 0 or more */
    VALUE_SECONDS, /* with a fraction */
    VALUE_ATTEMPT, /* a number or "all" */
    VALUE_CHOICE   /* one of choices */
} cli_value_kind;

typedef struct cli_option {
    cli_option_id id; /* OPT_NONE ends a table */
    char letter;      /* 0: none */
    const char *name; /* without the dashes */
    cli_value_kind kind;
    const char *argument; /* its name in help */
    const char *choices;  /* "a|b|c" */
    const char *help;
} cli_option;

/* What a positional argument is, for completion: p path, n name of a record, c one of choices, s subcommand. */
typedef struct cli_argument {
    const char *name;
    char what;
    bool optional;
    const char *choices;
} cli_argument;

#define CLI_MAX_ARGUMENTS 2

typedef struct cli cli;

typedef struct cli_command {
    const char *name;
    cli_argument arguments[CLI_MAX_ARGUMENTS];
    const char *summary;
    const char *details; /* NULL: the summary says it all */
    const char *exits;   /* what status 1 means here; NULL: it does not occur */
    const char *example; /* lines */
    const cli_option *options;
    int (*run)(const cli *args);
} cli_command;

/* In the order of help; a row without a name ends it. */
extern const cli_command CLI_COMMANDS[];
const cli_command *command_find(const char *name);

/* A command line, taken apart and checked. */
struct cli {
    const cli_command *command;
    const char *value[OPT_COUNT]; /* NULL: not given; "" for a flag */
    const char *argument[CLI_MAX_ARGUMENTS];
    int argument_count;
    bool json;
    char *joined[OPT_COUNT]; /* of options given more than once */
};

/* EXIT_FINE, or EXIT_TROUBLE after saying why. The strings belong to argv; args_free frees the rest, in any case. */
int args_parse(cli *args, const cli_command *command, int argc, char **argv);
void args_free(cli *args);
/* Of an option that was given as a number, else the default. */
int64_t args_number(const cli *args, cli_option_id id, int64_t otherwise);
/* How many edits turn one word into the other. */
size_t edit_distance(const char *a, const char *b);

void help_overview(FILE *to);
void help_command(const cli_command *command, FILE *to);
void usage_line(const cli_command *command, FILE *to);

int cmd_ls(const cli *args);
int cmd_show(const cli *args);
int cmd_stats(const cli *args);
int cmd_verify(const cli *args);
int cmd_compare(const cli *args);
int cmd_repeat(const cli *args);
int cmd_nan(const cli *args);
int cmd_export(const cli *args);
int cmd_index(const cli *args);
int cmd_recover(const cli *args);
int cmd_wait(const cli *args);
int cmd_convert(const cli *args);
int cmd_summary(const cli *args);
int cmd_completion(const cli *args);
int cmd_version(const cli *args);
int cmd_help(const cli *args);

/* ------------------------------------------------------------------------------------------------ talking to people */

/* printf in the current language: the format is the key of the translation. */
void say(FILE *to, const char *fmt, ...) TAP_PRINTF(2, 3);
/* "tensortap ls: ..." on stderr; returns EXIT_TROUBLE. */
int trouble(const cli *args, const char *fmt, ...) TAP_PRINTF(2, 3);
/* The same for what the library reported, with the hint of its status where the message has none. */
int trouble_error(const cli *args, const tap_error *err);
/* As trouble, and where to read more. */
int trouble_usage(const cli_command *command, const char *fmt, ...) TAP_PRINTF(2, 3);

/* Says so and which one was perhaps meant. */
int command_unknown(const char *given);

/* Memory of the command itself: it ends the program with a message when there is none. */
void *get_memory(void *old, size_t size);
char *copy_text(const char *text, size_t len);

#endif
