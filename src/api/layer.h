/* What the checks of the layer parts share. */
#ifndef GDN2_API_LAYER_H
#define GDN2_API_LAYER_H
#include "api/problem.h"

/* Fails if the product of these sizes is beyond what any arithmetic on addresses can bear. names: as the sentence lists them. */
gdn2_status gdn2_check_total(const char *names, const int64_t *sizes, int count);
/* The workers of a call over so many numbers, and its table: a thread is worth its start only from some number on. */
gdn2_status gdn2_check_layer_exec(const gdn2_exec *exec, int64_t numbers, int *threads, const gdn2_table **table);
#endif
