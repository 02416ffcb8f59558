/* records.h - what several subcommands do with a recording: open it, turn options into a query, show one record. */
#ifndef TAP_CLI_RECORDS_H
#define TAP_CLI_RECORDS_H

#include "cli.h"
#include "jsonout.h"

/* The first argument as a recording; EXIT_FINE or EXIT_TROUBLE. */
int run_open(const cli *args, tap_run **out);
/* The filters of the command line. */
void query_from(const cli *args, tap_query *query);
/* Were there any? */
bool query_filters(const cli *args);
/* Says that nothing matched and which names come near; returns EXIT_DIFFERENT. */
int nothing_matched(const cli *args, tap_run *run, const char *name);

/* "x2" or "x2[key.0]"; *room grows as needed and is the caller's to free. */
const char *record_label(const tap_record *record, char **room, size_t *cap);
const char *value_type_name(tap_value_type type);
const char *state_name(tap_record_state state); /* "whole": for programs */
const char *state_text(tap_record_state state); /* for people, in their language; "ok" */
bool state_is_bad(tap_record_state state);
/* Has dtype, shape and (unless the state says otherwise) bytes. */
bool record_is_tensor(const tap_record *record);
/* Has statistics worth showing: those of the bytes of a text are not. */
bool record_has_numbers(const tap_record *record);
uint64_t stats_bad(const tap_stats *stats); /* values that are NaN or infinite */

#define TEXT_MAX 64
const char *shape_text(char *text, size_t size, const int64_t *shape, int32_t ndim);
const char *number_text(char text[TEXT_MAX], tap_dtype dtype, tap_number number);
const char *real_text(char text[TEXT_MAX], double number);
const char *bytes_text(char text[TEXT_MAX], uint64_t bytes);
const char *bad_text(char text[TEXT_MAX], const tap_stats *stats); /* "3 nan 1 inf", "" when none */
const char *time_text(char text[TEXT_MAX], uint64_t time_ns);
/* "1 record", "5 records", in the current language: both texts are formats of one %llu. */
const char *counted_text(char text[TEXT_MAX], uint64_t count, const char *one, const char *many);
double number_real(tap_dtype dtype, tap_number number);

/* All a record says, as members of the open object. */
void record_json(jsonout *json, const tap_record *record);
void stats_json(jsonout *json, const char *key, tap_dtype dtype, const tap_stats *stats);
void shape_json(jsonout *json, const char *key, const int64_t *shape, int32_t ndim);

/* One line over everything: what, how much, how it ended. */
typedef struct number_set {
    int64_t *slots;
    uint8_t *used;
    size_t cap, count;
    int64_t min, max;
} number_set;
void set_add(number_set *set, int64_t number);
void set_free(number_set *set);
/* "closed", "rank 1 killed, rank 3 still recording"; "" when the layout does not tell. */
const char *ended_text(const tap_run *run, char *text, size_t size);
const char *ended_name(const char *ended); /* translated */

#endif
