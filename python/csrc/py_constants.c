/* py_constants.c - what the public headers number, by name, so that no Python file types a number again: dicts such as
 * KINDS = {"forward": 0, ...}, and single numbers such as SAVE_SLOT. _core.pyi lists them. */
#include "py_site.h"

#include "tensortap/tensortap_compare.h"
#include "tensortap/tensortap_engine.h"

typedef struct named {
    const char *name;
    long number;
} named;

static const named DTYPES[] = {
#define X(id, value, bytes, class, name, ...) {name, value},
    TAP_DTYPE_MAP(X)
#undef X
    {NULL, 0},
};
static const named MATCH_CLASSES[] = {
#define X(name, value, text) {text, value},
    TAP_MATCH_MAP(X)
#undef X
    {NULL, 0},
};
static const named MODES[] = {{"new", TAP_OPEN_NEW}, {"append", TAP_OPEN_APPEND}, {"replace", TAP_OPEN_REPLACE}, {NULL, 0}};
static const named KEEP[] = {{"stats", TAP_KEEP_STATS},
                             {"tensor", TAP_KEEP_TENSOR},
                             {"both", TAP_KEEP_STATS | TAP_KEEP_TENSOR},
                             {"health", TAP_KEEP_HEALTH},
                             {NULL, 0}};
static const named FULL[] = {{"block", TAP_FULL_BLOCK}, {"stats", TAP_FULL_STATS}, {"drop", TAP_FULL_DROP}, {NULL, 0}};
static const named DURABILITY[] = {
    {"process", TAP_DURABLE_PROCESS}, {"flush", TAP_DURABLE_FLUSH}, {"save", TAP_DURABLE_SAVE}, {NULL, 0}};
static const named RINGS[] = {{"auto", TAP_RING_AUTO}, {"memory", TAP_RING_MEMORY}, {"file", TAP_RING_FILE}, {NULL, 0}};
static const named CHECKSUMS[] = {{"crc32", TAP_CHECKSUM_CRC32}, {"xor", TAP_CHECKSUM_XOR}, {NULL, 0}};
static const struct {
    const char *name;
    const named *rows;
} DICTS[] = {{"DTYPES", DTYPES},         {"MODES", MODES}, {"KEEP", KEEP},          {"FULL", FULL},
             {"DURABILITY", DURABILITY}, {"RINGS", RINGS}, {"CHECKSUMS", CHECKSUMS},
             {"MATCH_CLASSES", MATCH_CLASSES}};

static const named NUMBERS[] = {
#define NUMBER(name) {#name, TAP_##name}
    NUMBER(SAVE_REQUIRES_GRAD), NUMBER(SAVE_RECOMPUTED), NUMBER(SAVE_SLOT),       NUMBER(SAVE_SLOT_GONE),
    NUMBER(SAVE_OVERWRITE),     NUMBER(SYM_ADD),         NUMBER(SYM_SUB),         NUMBER(SYM_MUL),
    NUMBER(SYM_FLOORDIV),       NUMBER(SYM_MOD),         NUMBER(SYM_POW),         NUMBER(SYM_MAX),
    NUMBER(SYM_MIN),            NUMBER(CALL_HOST),       NUMBER(CALL_OBSERVE),    NUMBER(ENGINE_EVERY_NODE),
    NUMBER(ENGINE_PROFILE),     NUMBER(MAX_NDIM),
#undef NUMBER
    {"WANTS_TICKET", WANTS_TICKET},
};

static PyObject *dict_of(const named *rows)
{
    PyObject *dict = PyDict_New();
    for (; dict && rows->name; rows++) {
        PyObject *number = PyLong_FromLong(rows->number);
        if (!number || PyDict_SetItemString(dict, rows->name, number) < 0)
            Py_CLEAR(dict);
        Py_XDECREF(number);
    }
    return dict;
}

/* The kinds are told by the library itself. */
static PyObject *kinds(void)
{
    named rows[TAP_KIND_PARAM + 2] = {{NULL, 0}};
    for (int kind = TAP_KIND_FORWARD; kind <= TAP_KIND_PARAM; kind++)
        rows[kind] = (named){tap_kind_name((tap_kind)kind), kind};
    return dict_of(rows);
}

static int add(PyObject *module, const char *name, PyObject *value)
{
    int failed = value ? PyModule_AddObjectRef(module, name, value) : -1;
    Py_XDECREF(value);
    return failed;
}

int constants_init(PyObject *module)
{
    int failed = add(module, "KINDS", kinds());
    for (size_t i = 0; !failed && i < sizeof DICTS / sizeof DICTS[0]; i++)
        failed = add(module, DICTS[i].name, dict_of(DICTS[i].rows));
    for (size_t i = 0; !failed && i < sizeof NUMBERS / sizeof NUMBERS[0]; i++)
        failed = PyModule_AddIntConstant(module, NUMBERS[i].name, NUMBERS[i].number);
    return failed;
}
