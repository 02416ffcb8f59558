/* test_strmap.c - the table of byte strings against a list that is searched from the front. */
#include "base/failing_allocator.h"
#include "base/random.h"
#include "record/layouts/strmap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { KEYS = 3000, LONGEST = 12 };

typedef struct pair {
    char key[LONGEST];
    size_t len;
    uint64_t value;
} pair;

static pair list[KEYS];
static int count;

static pair *look(const char *key, size_t len)
{
    for (int i = 0; i < count; i++)
        if (list[i].len == len && memcmp(list[i].key, key, len) == 0)
            return &list[i];
    return NULL;
}

/* Short keys of few letters, zero bytes among them: many are equal, many are the beginning of another. */
static size_t draw(char *key)
{
    size_t len = next_random() % (LONGEST + 1);
    for (size_t i = 0; i < len; i++)
        key[i] = (char)(next_random() % 3);
    return len;
}

static void as_a_list_has_it(void **state)
{
    (void)state;
    tap_strmap map = {0};
    assert_null(tap__strmap_find(&map, "x", 1)); /* nothing in it yet */
    count = 0;
    for (int i = 0; i < 20000 && count < KEYS; i++) {
        char key[LONGEST];
        size_t len = draw(key);
        pair *there = look(key, len);
        uint64_t *found = tap__strmap_find(&map, key, len);
        assert_int_equal(found != NULL, there != NULL);
        if (found)
            assert_int_equal(*found, there->value);
        bool added;
        uint64_t *value = tap__strmap_add(&map, key, len, &added);
        assert_non_null(value);
        assert_int_equal(added, there == NULL);
        if (added) {
            assert_int_equal(*value, 0);
            there = &list[count++];
            memcpy(there->key, key, len);
            there->len = len;
        }
        *value = there->value = next_random();
        assert_int_equal(map.count, count);
        assert_true(map.count * 4 <= map.cap * 3); /* a search ends */
    }
    for (int i = 0; i < count; i++)
        assert_int_equal(*tap__strmap_find(&map, list[i].key, list[i].len), list[i].value);
    tap__strmap_free(&map);
    assert_int_equal(map.count, 0);
    assert_null(tap__strmap_find(&map, "", 0));
}

/* When memory ends the table is as it was before. */
static void without_memory(void **state)
{
    (void)state;
    for (long n = 0; n < 300; n++) {
        tap_strmap map = {0};
        bool added;
        size_t in = 0;
        allocations_left = n;
        tap_allocator_set(&FAILING_ALLOCATOR);
        for (int i = 0; i < 200; i++) {
            char key[12];
            int len = snprintf(key, sizeof key, "k%d", i);
            uint64_t *value = tap__strmap_add(&map, key, (size_t)len, &added);
            if (value)
                *value = (uint64_t)i;
            else
                assert_false(added);
            in += value != NULL;
        }
        tap_allocator_set(NULL);
        assert_int_equal(map.count, in);
        for (int i = 0; i < 200; i++) {
            char key[12];
            int len = snprintf(key, sizeof key, "k%d", i);
            const uint64_t *value = tap__strmap_find(&map, key, (size_t)len);
            assert_true(!value || *value == (uint64_t)i);
            in -= value != NULL;
        }
        assert_int_equal(in, 0);
        tap__strmap_free(&map);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_a_list_has_it), cmocka_unit_test(without_memory)};
    return cmocka_run_group_tests_name("strmap", tests, NULL, NULL);
}
