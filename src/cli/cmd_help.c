/* cmd_help.c - help, made from the tables of subcommands and options. */
#include "cli.h"
#include "jsonout.h"
#include "term.h"

#include <string.h>

static void pad(FILE *to, int columns)
{
    for (int i = 0; i < columns; i++)
        fputc(' ', to);
}

void usage_line(const cli_command *command, FILE *to)
{
    say(to, "usage: tensortap %s", command->name);
    for (int i = 0; i < CLI_MAX_ARGUMENTS && command->arguments[i].name; i++)
        fprintf(to, command->arguments[i].optional ? " [%s]" : " %s", command->arguments[i].name);
    say(to, " [options]\n");
}

static int option_head(const cli_option *option, char *text, size_t size)
{
    char letter[8] = "    ";
    if (option->letter)
        snprintf(letter, sizeof letter, "-%c, ", option->letter);
    return snprintf(text, size, "  %s--%s%s%s", letter, option->name, option->argument ? " " : "",
                    option->argument ? option->argument : "");
}

static void help_options(const cli_command *command, FILE *to)
{
    char head[80];
    int widest = 0;
    for (const cli_option *row = command->options; row->id; row++) {
        int width = option_head(row, head, sizeof head);
        widest = width > widest ? width : widest;
    }
    say(to, "\noptions:\n");
    for (const cli_option *row = command->options; row->id; row++) {
        int width = option_head(row, head, sizeof head);
        fputs(head, to);
        pad(to, widest - width + 2);
        fprintf(to, "%s\n", tap_text(row->help));
    }
}

static void help_example(const char *lines, FILE *to)
{
    for (const char *at = lines; *at;) {
        size_t len = strcspn(at, "\n");
        fprintf(to, "  %.*s\n", (int)len, at);
        at += len + (at[len] == '\n');
    }
}

void help_command(const cli_command *command, FILE *to)
{
    usage_line(command, to);
    fprintf(to, "\ntensortap %s: %s\n", command->name, tap_text(command->summary));
    if (command->details)
        fprintf(to, "%s\n", tap_text(command->details));
    help_options(command, to);
    say(to, "\nexit status:\n");
    say(to, "  0  fine\n");
    if (command->exits)
        fprintf(to, "  1  %s\n", tap_text(command->exits));
    say(to, "  2  wrong usage, or it could not be done\n");
    say(to, "\nexamples:\n");
    help_example(command->example, to);
}

void help_overview(FILE *to)
{
    say(to, "tensortap reads recordings of the tensors of a running model.\n\n");
    say(to, "usage: tensortap SUBCOMMAND [arguments] [options]\n\n");
    int widest = 0;
    for (const cli_command *row = CLI_COMMANDS; row->name; row++)
        if ((int)strlen(row->name) > widest)
            widest = (int)strlen(row->name);
    for (const cli_command *row = CLI_COMMANDS; row->name; row++)
        fprintf(to, "  %-*s  %s\n", widest, row->name, tap_text(row->summary));
    say(to, "\nexamples:\n");
    help_example("tensortap ls run\ntensortap show run layers.0.out --step 3\ntensortap verify run\n", to);
    say(to, "\nexit status: 0 fine; 1 something lost or different, or nothing matched; 2 wrong usage or an error\n");
    say(to, "more: tensortap help SUBCOMMAND\n");
}

static void help_json(const cli_command *command)
{
    jsonout json = {0};
    json_open(&json, NULL, '{');
    json_text(&json, "subcommand", command->name);
    json_text(&json, "summary", tap_text(command->summary));
    json_open(&json, "arguments", '[');
    for (int i = 0; i < CLI_MAX_ARGUMENTS && command->arguments[i].name; i++) {
        json_open(&json, NULL, '{');
        json_text(&json, "name", command->arguments[i].name);
        json_bool(&json, "optional", command->arguments[i].optional);
        json_close(&json, '}');
    }
    json_close(&json, ']');
    json_open(&json, "options", '[');
    for (const cli_option *row = command->options; row->id; row++) {
        json_open(&json, NULL, '{');
        json_text(&json, "name", row->name);
        json_text(&json, "argument", row->argument);
        json_text(&json, "choices", row->choices);
        json_text(&json, "help", tap_text(row->help));
        json_close(&json, '}');
    }
    json_close(&json, ']');
    json_end(&json);
}

int cmd_help(const cli *args)
{
    const char *name = args->argument[0];
    const cli_command *command = name ? command_find(name) : NULL;
    if (name && !command)
        return command_unknown(name);
    if (args->json) {
        for (const cli_command *row = CLI_COMMANDS; row->name; row++)
            if (!command || row == command)
                help_json(row);
    } else if (command) {
        help_command(command, stdout);
    } else {
        help_overview(stdout);
    }
    return EXIT_FINE;
}
