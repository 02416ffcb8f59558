/* cmd_completion.c - completion scripts for bash and zsh, made from the tables. Names of records are completed by
 * asking `tensortap ls`. */
#include "cli.h"
#include "jsonout.h"

#include <stdlib.h>
#include <string.h>

static void put_words(FILE *to, const char *choices)
{
    for (; choices && *choices; choices++)
        fputc(*choices == '|' ? ' ' : *choices, to);
}

static void put_commands(FILE *to)
{
    for (const cli_command *row = CLI_COMMANDS; row->name; row++)
        fprintf(to, "%s%s", row == CLI_COMMANDS ? "" : " ", row->name);
}

/* ----------------------------------------------------------------------------------------------------------- bash */

static void bash_options(const cli_command *command, FILE *to)
{
    fprintf(to, "        %s)\n            options='", command->name);
    for (const cli_option *row = command->options; row->id; row++)
        fprintf(to, "%s--%s", row == command->options ? "" : " ", row->name);
    fputs("'\n            case $prev in\n", to);
    for (const cli_option *row = command->options; row->id; row++) {
        if (row->kind == VALUE_FLAG)
            continue;
        fprintf(to, "            --%s", row->name);
        if (row->letter)
            fprintf(to, "|-%c", row->letter);
        fputs(") words='", to);
        put_words(to, row->choices);
        fprintf(to, "'; value=%s ;;\n", row->id == OPT_NAME ? "names" : "words");
    }
    fputs("            esac\n", to);
    for (int i = 0; i < CLI_MAX_ARGUMENTS && command->arguments[i].name; i++) {
        const cli_argument *it = &command->arguments[i];
        fprintf(to, "            kinds[%d]=%c", i, it->what);
        if (it->choices || it->what == 's') {
            fprintf(to, "; choices[%d]='", i);
            if (it->choices)
                put_words(to, it->choices);
            else
                put_commands(to);
            fputc('\'', to);
        }
        fputc('\n', to);
    }
    fputs("            ;;\n", to);
}

static void bash_script(FILE *to)
{
    fputs("# bash completion for tensortap: source <(tensortap completion bash)\n"
          "_tensortap_names() {\n"
          "    tensortap ls --json --limit 20000 -- \"$1\" 2>/dev/null |\n"
          "        sed -n 's/.*\"name\": \"\\([^\"\\\\]*\\)\", \"path\".*/\\1/p' | sort -u\n"
          "}\n\n"
          "_tensortap() {\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]}\n"
          "    local options='' words='' value='' run='' i n=0 kinds=() choices=()\n"
          "    COMPREPLY=()\n"
          "    if ((COMP_CWORD == 1)); then\n"
          "        COMPREPLY=($(compgen -W '",
          to);
    put_commands(to);
    fputs("' -- \"$cur\"))\n"
          "        return\n"
          "    fi\n"
          "    case $command in\n",
          to);
    for (const cli_command *row = CLI_COMMANDS; row->name; row++)
        bash_options(row, to);
    fputs("    *) return ;;\n"
          "    esac\n"
          "    for ((i = 2; i < COMP_CWORD; i++)); do\n"
          "        [[ ${COMP_WORDS[i]} == -* ]] && continue\n"
          "        ((n++ == 0)) && run=${COMP_WORDS[i]}\n"
          "    done\n"
          "    if [[ $value == names || (-z $value && $cur != -* && ${kinds[n]} == n) ]]; then\n"
          "        mapfile -t COMPREPLY < <(compgen -W \"$(_tensortap_names \"$run\")\" -- \"$cur\")\n"
          "    elif [[ $value == words ]]; then\n"
          "        COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
          "    elif [[ $cur == -* ]]; then\n"
          "        COMPREPLY=($(compgen -W \"$options\" -- \"$cur\"))\n"
          "    elif [[ -n ${choices[n]} ]]; then\n"
          "        COMPREPLY=($(compgen -W \"${choices[n]}\" -- \"$cur\"))\n"
          "    elif [[ ${kinds[n]} == p ]]; then\n"
          "        compopt -o filenames\n"
          "        mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
          "    fi\n"
          "}\n"
          "complete -F _tensortap tensortap\n",
          to);
}

/* ------------------------------------------------------------------------------------------------------------ zsh */

/* Inside '...' of an _arguments specification. */
static void zsh_text(FILE *to, const char *text)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", to);
        else if (*text == '\n')
            fputc(' ', to);
        else {
            if (strchr("[]:\\", *text))
                fputc('\\', to);
            fputc(*text, to);
        }
    }
}

static void zsh_option(const cli_option *row, FILE *to)
{
    const char *repeat = row->id == OPT_NAME ? "*" : "";
    fprintf(to, " \\\n            ");
    if (row->letter && *repeat)
        fprintf(to, "'*'{-%c+,--%s=}'[", row->letter, row->name);
    else if (row->letter && row->kind != VALUE_FLAG)
        fprintf(to, "'(-%c --%s)'{-%c+,--%s=}'[", row->letter, row->name, row->letter, row->name);
    else if (row->letter)
        fprintf(to, "'(-%c --%s)'{-%c,--%s}'[", row->letter, row->name, row->letter, row->name);
    else
        fprintf(to, "'%s--%s%s[", repeat, row->name, row->kind == VALUE_FLAG ? "" : "=");
    zsh_text(to, row->help);
    fputc(']', to);
    if (row->kind != VALUE_FLAG) {
        fprintf(to, ":%s:", row->argument);
        if (row->choices) {
            fputc('(', to);
            put_words(to, row->choices);
            fputc(')', to);
        } else if (row->id == OPT_NAME) {
            fputs("_tensortap_names", to);
        }
    }
    fputc('\'', to);
}

static void zsh_command(const cli_command *command, FILE *to)
{
    fprintf(to, "    %s)\n        _arguments -s", command->name);
    for (const cli_option *row = command->options; row->id; row++)
        zsh_option(row, to);
    for (int i = 0; i < CLI_MAX_ARGUMENTS && command->arguments[i].name; i++) {
        const cli_argument *it = &command->arguments[i];
        fprintf(to, " \\\n            '%d:%s%s:", i + 1, it->optional ? ":" : "", it->name);
        if (it->what == 'p')
            fputs("_files", to);
        else if (it->what == 'n')
            fputs("_tensortap_names", to);
        else {
            fputc('(', to);
            if (it->choices)
                put_words(to, it->choices);
            else
                put_commands(to);
            fputc(')', to);
        }
        fputc('\'', to);
    }
    fputs(" ;;\n", to);
}

static void zsh_script(FILE *to)
{
    fputs("#compdef tensortap\n"
          "# zsh completion for tensortap: tensortap completion zsh > a directory of $fpath, as _tensortap\n"
          "_tensortap_names() {\n"
          "    local run=${${words[2,-1]:#-*}[1]} names\n"
          "    names=(${(fu)\"$(tensortap ls --json --limit 20000 -- \"$run\" 2>/dev/null |\n"
          "        sed -n 's/.*\"name\": \"\\([^\"\\\\]*\\)\", \"path\".*/\\1/p')\"})\n"
          "    compadd -a names\n"
          "}\n\n"
          "_tensortap() {\n"
          "    local -a commands\n"
          "    commands=(\n",
          to);
    for (const cli_command *row = CLI_COMMANDS; row->name; row++) {
        fprintf(to, "        '%s:", row->name);
        zsh_text(to, row->summary);
        fputs("'\n", to);
    }
    fputs("    )\n"
          "    if ((CURRENT == 2)); then\n"
          "        _describe subcommand commands\n"
          "        return\n"
          "    fi\n"
          "    local command=${words[2]}\n"
          "    shift words\n"
          "    ((CURRENT--))\n"
          "    case $command in\n",
          to);
    for (const cli_command *row = CLI_COMMANDS; row->name; row++)
        zsh_command(row, to);
    fputs("    esac\n"
          "}\n\n"
          "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n"
          "    _tensortap \"$@\"\n"
          "else\n"
          "    compdef _tensortap tensortap\n"
          "fi\n",
          to);
}

int cmd_completion(const cli *args)
{
    bool bash = strcmp(args->argument[0], "bash") == 0;
    char *script = NULL;
    size_t len = 0;
    FILE *to = open_memstream(&script, &len);
    if (!to)
        return trouble(args, "out of memory");
    if (bash)
        bash_script(to);
    else
        zsh_script(to);
    if (fclose(to) != 0)
        return trouble(args, "out of memory");
    if (args->json) {
        jsonout json = {0};
        json_open(&json, NULL, '{');
        json_text(&json, "shell", args->argument[0]);
        json_text(&json, "script", script);
        json_end(&json);
    } else {
        fputs(script, stdout);
    }
    free(script);
    return EXIT_FINE;
}
