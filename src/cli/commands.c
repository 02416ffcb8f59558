/* commands.c - the one table of subcommands and the options of each. Parsing, help, usage messages and the completion
 * scripts are all made from it: a new subcommand is a row here, its function, and its texts in text_zh.def. */
#include "cli.h"

#include <string.h>

#define OPTION_END {OPT_NONE, 0, NULL, VALUE_FLAG, NULL, NULL, NULL}

#define OPTIONS_COMMON                                                                                               \
    {OPT_JSON, 0, "json", VALUE_FLAG, NULL, NULL, N_("print JSON, one object a line")},                              \
    {OPT_COLOR, 0, "color", VALUE_CHOICE, "WHEN", "auto|always|never",                                               \
     N_("colours: auto (on a terminal), always or never")},                                                          \
    {OPT_HELP, 'h', "help", VALUE_FLAG, NULL, NULL, N_("print this help")}, OPTION_END

#define OPTIONS_FILTER_RECORDS                                                                                       \
    {OPT_NAME, 'n', "name", VALUE_TEXT, "GLOB", NULL,                                                                \
     N_("only these names: 'attn.*|loss', '!*.bias'; may be repeated")},                                             \
    {OPT_STEP, 's', "step", VALUE_TEXT, "RANGES", NULL, N_("only these steps: 3, 0,10-20 or 100-")},                 \
    {OPT_RANK, 'r', "rank", VALUE_TEXT, "RANGES", NULL, N_("only these ranks, written as steps are")},               \
    {OPT_KIND, 'k', "kind", VALUE_CHOICE, "KIND", "forward|grad|input|output|param",                                 \
     N_("only this kind: forward, grad, input, output or param")}

#define OPTIONS_FILTER                                                                                               \
    OPTIONS_FILTER_RECORDS,                                                                                          \
    {OPT_ATTEMPT, 0, "attempt", VALUE_ATTEMPT, "N", "all",                                                           \
     N_("this attempt of the job, or all; default: the newest of each rank")}

static const cli_option LS[] = {
    {OPT_LONG, 'l', "long", VALUE_FLAG, NULL, NULL, N_("also time, source line, module and hash")},
    {OPT_FOLLOW, 'f', "follow", VALUE_FLAG, NULL, NULL, N_("go on printing while the recording grows")},
    {OPT_LIMIT, 0, "limit", VALUE_NUMBER, "N", NULL, N_("print at most N records; 0: all")},
    OPTIONS_FILTER,
    OPTIONS_COMMON,
};

static const cli_option SHOW[] = {
    OPTIONS_FILTER,
    {OPT_CALL, 'c', "call", VALUE_NUMBER, "N", NULL, N_("only this call of the name within its step")},
    {OPT_ALL, 'a', "all", VALUE_FLAG, NULL, NULL, N_("every record that matches, not only the newest of each name")},
    {OPT_FULL, 0, "full", VALUE_FLAG, NULL, NULL, N_("print every value, nothing replaced by ...")},
    {OPT_PRECISION, 'p', "precision", VALUE_NUMBER, "N", NULL, N_("digits after the point; default 8")},
    OPTIONS_COMMON,
};

static const cli_option STATS[] = {
    OPTIONS_FILTER,
    OPTIONS_COMMON,
};

static const cli_option VERIFY[] = {
    {OPT_QUICK, 'q', "quick", VALUE_FLAG, NULL, NULL, N_("do not read the tensors, only what describes them")},
    {OPT_RULES, 0, "rules", VALUE_FLAG, NULL, NULL, N_("also list what filters and limits left out")},
    {OPT_ALL, 'a', "all", VALUE_FLAG, NULL, NULL, N_("every step, not only those with a difference")},
    {OPT_LIMIT, 0, "limit", VALUE_NUMBER, "N", NULL, N_("print at most N differences; default 100, 0: all")},
    OPTIONS_COMMON,
};

static const cli_option COMPARE[] = {
    {OPT_TOL, 't', "tol", VALUE_TEXT, "RULE", NULL,
     N_("tolerance of some names: 'attn.*: rel<=1e-3 or abs<=1e-5'; may be repeated, the first that matches counts")},
    {OPT_NOISE, 0, "noise", VALUE_TEXT, "RUN", NULL,
     N_("a repetition of A: what differs no more than that is noise; may be repeated")},
    {OPT_STEPS, 0, "steps", VALUE_TEXT, "A:B", NULL, N_("step A of the first stands beside step B of the second, and so on")},
    {OPT_PRECISION, 'p', "precision", VALUE_TEXT, "TYPE", NULL,
     N_("what was computed in, if coarser than what was recorded: tf32, bfloat16 or another dtype")},
    {OPT_ALLOW, 0, "allow", VALUE_TEXT, "GLOB", NULL, N_("these names may differ or be missing; may be repeated")},
    {OPT_ALL, 'a', "all", VALUE_FLAG, NULL, NULL, N_("list every match, not only those that differ")},
    {OPT_LIMIT, 0, "limit", VALUE_NUMBER, "N", NULL, N_("list at most N matches; default 20, 0: all")},
    {OPT_OUTPUT, 'o', "output", VALUE_TEXT, "FILE.cmp", NULL, N_("keep the result, an SQLite file that compare reads again")},
    {OPT_CSV, 0, "csv", VALUE_FLAG, NULL, NULL, N_("print comma-separated values, a line for each match")},
    {OPT_THREADS, 0, "threads", VALUE_NUMBER, "N", NULL, N_("threads that compare; default: one a processor, at most 8")},
    OPTIONS_FILTER_RECORDS,
    OPTIONS_COMMON,
};

static const cli_option REPEAT[] = {
    {OPT_ALLOW, 0, "allow", VALUE_TEXT, "GLOB", NULL, N_("these names may differ or be missing; may be repeated")},
    {OPT_ALL, 'a', "all", VALUE_FLAG, NULL, NULL, N_("list every match, not only those that differ")},
    {OPT_LIMIT, 0, "limit", VALUE_NUMBER, "N", NULL, N_("list at most N matches; default 20, 0: all")},
    {OPT_OUTPUT, 'o', "output", VALUE_TEXT, "FILE.cmp", NULL, N_("keep the result, an SQLite file that compare reads again")},
    {OPT_CSV, 0, "csv", VALUE_FLAG, NULL, NULL, N_("print comma-separated values, a line for each match")},
    {OPT_THREADS, 0, "threads", VALUE_NUMBER, "N", NULL, N_("threads that compare; default: one a processor, at most 8")},
    OPTIONS_FILTER_RECORDS,
    OPTIONS_COMMON,
};

static const cli_option EXPORT[] = {
    {OPT_FORMAT, 'F', "format", VALUE_CHOICE, "FORMAT", "npy|pt|safetensors",
     N_("npy, pt or safetensors; default: from the suffix of OUT, else npy")},
    OPTIONS_FILTER,
    {OPT_EXACT, 0, "exact", VALUE_FLAG, NULL, NULL, N_("fail rather than widen a type the format lacks")},
    {OPT_FORCE, 0, "force", VALUE_FLAG, NULL, NULL, N_("replace files that are there already")},
    OPTIONS_COMMON,
};

static const cli_option WAIT[] = {
    {OPT_TIMEOUT, 't', "timeout", VALUE_SECONDS, "SECONDS", NULL, N_("give up after this long; default: never")},
    OPTIONS_COMMON,
};

static const cli_option CONVERT[] = {
    {OPT_ALL, 'a', "all", VALUE_FLAG, NULL, NULL, N_("also tensors without a name of their own")},
    {OPT_FORCE, 0, "force", VALUE_FLAG, NULL, NULL, N_("replace files that are there already")},
    OPTIONS_COMMON,
};

static const cli_option SUMMARY[] = {
    {OPT_LANG, 0, "lang", VALUE_CHOICE, "LANGUAGE", "en|zh", N_("en or zh; default: that of the terminal")},
    {OPT_LONG, 'l', "long", VALUE_FLAG, NULL, NULL, N_("also how often it was called with which arguments")},
    OPTIONS_COMMON,
};

static const cli_option PLAIN[] = {OPTIONS_COMMON};

#define RUN {"RUN", 'p', false, NULL}

const cli_command CLI_COMMANDS[] = {
    {"ls", {RUN}, N_("list the records of a recording"),
     N_("RUN is the directory of a recording, finished or growing, in any layout tensortap knows."),
     N_("the filters matched nothing"), "tensortap ls run --name 'attn.*' --step 0-2\ntensortap ls run --follow\n", LS,
     cmd_ls},
    {"show", {RUN, {"NAME", 'n', true, NULL}}, N_("print tensors, their statistics and a histogram"),
     N_("NAME is the name of a record or a glob. Without --step the last step is shown, without --rank the lowest "
        "rank,\nwithout --call the last call. RUN may also be a single .npy, .pt, .safetensors or print file."),
     N_("there is no such name"), "tensortap show run layers.0.out --step 3\ntensortap show x.npy\n", SHOW, cmd_show},
    {"stats", {RUN}, N_("summarise each name over the steps, and the health of each step"), NULL,
     N_("the filters matched nothing"), "tensortap stats run --kind grad\n", STATS, cmd_stats},
    {"verify", {RUN}, N_("compare what was asked for with what is on disk"),
     N_("For each step and rank: what was asked for, what was captured, and the reason for each difference."),
     N_("something was lost"), "tensortap verify run\ntensortap verify run --quick --json\n", VERIFY, cmd_verify},
    {"compare", {{"A", 'p', false, NULL}, {"B", 'p', true, NULL}},
     N_("compare two recordings and name the first operation that is wrong"),
     N_("A and B are recordings of the same program, in any layout; A alone is a result that -o kept. Records find each\n"
        "other by step, rank, name, kind and call. A value may be off by the rounding of its dtype: beyond that it is\n"
        "\"wrong\" when it is far more off than everything before it, else \"drift\"."),
     N_("something drifts, differs or is on one side only"),
     "tensortap compare good bad\ntensortap compare good bad --noise good2 --tol 'head.*: rel<=1e-3'\n"
     "tensortap compare good bad -o result.cmp --json\n", COMPARE, cmd_compare},
    {"repeat", {{"A", 'p', false, NULL}, {"B", 'p', false, NULL}},
     N_("find the first tensor of two runs that is not the same bit for bit"),
     N_("Only hashes are compared; tensors are read where they differ."), N_("something is not the same"),
     "tensortap repeat run1 run2\n", REPEAT, cmd_repeat},
    {"nan", {RUN}, N_("find the first NaN or Inf, and what fed it"), NULL, N_("there is one"),
     "tensortap nan run\ntensortap nan run --kind forward\n", STATS, cmd_nan},
    {"export", {RUN, {"OUT", 'p', false, NULL}}, N_("write tensors as npy, pt or safetensors files"),
     N_("OUT is a directory, which gets one file for each record, or a file that ends in .safetensors or .pt and gets\n"
        "all of them, or in .npy and gets the only one."),
     N_("nothing matched, or some records had no bytes to export"),
     "tensortap export run out --format pt --name 'attn.*'\ntensortap export run step3.safetensors --step 3\n", EXPORT,
     cmd_export},
    {"index", {RUN}, N_("build the index of a recording anew"),
     N_("The index only makes reading fast; losing it loses nothing."), NULL, "tensortap index run\n", PLAIN,
     cmd_index},
    {"recover", {RUN}, N_("finish a recording whose writer died"),
     N_("Drains ring files that were left behind and finishes the attempts they belong to."), NULL,
     "tensortap recover run\n", PLAIN, cmd_recover},
    {"wait", {RUN}, N_("wait until nothing writes to a recording any more"), NULL, N_("the time was up"),
     "tensortap wait run --timeout 60\n", WAIT, cmd_wait},
    {"convert", {{"PRINT_FILE", 'p', false, NULL}, {"OUT_DIR", 'p', false, NULL}},
     N_("turn a MindSpore print file into npy files"),
     N_("Writes <name>_<dtype>_<number>.npy for each tensor that follows a \"_TS_SAVE_NAME:<name>\" text."),
     N_("the file holds no such tensor, or a text could not be read as one"), "tensortap convert print.pb out\n",
     CONVERT, cmd_convert},
    {"summary", {{"CSV_FILE", 'p', false, NULL}}, N_("print the summary of a compiled model's operators"),
     N_("CSV_FILE is a summary_<time>.csv that a compile with config.debug.fx_summary left."), NULL,
     "tensortap summary summary_20260101120000000000.csv --lang en\n", SUMMARY, cmd_summary},
    {"completion", {{"SHELL", 'c', false, "bash|zsh"}}, N_("print the completion script of a shell"), NULL, NULL,
     "source <(tensortap completion bash)\ntensortap completion zsh > \"${fpath[1]}/_tensortap\"\n", PLAIN,
     cmd_completion},
    {"version", {{NULL, 0, false, NULL}}, N_("print the version and what this build can do"), NULL, NULL,
     "tensortap version --json\n", PLAIN, cmd_version},
    {"help", {{"SUBCOMMAND", 's', true, NULL}}, N_("print help, of a subcommand or overall"), NULL, NULL,
     "tensortap help ls\n", PLAIN, cmd_help},
    {.name = NULL},
};

const cli_command *command_find(const char *name)
{
    for (const cli_command *row = CLI_COMMANDS; row->name; row++)
        if (strcmp(row->name, name) == 0)
            return row;
    return NULL;
}
