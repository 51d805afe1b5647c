// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "sanitizers.hpp"

// The types for which suites are instantiated, to be named in TEST_CASE_TEMPLATE; whoever uses a list includes what it names. Compile time
// grows with the number of instances: count them before you add a type. Under a sanitizer, and where nothing is run, lists are short: fp16, bf16
// and fp8 share all code, and so do optimizers with the same kinds of state.
#if !defined(TESSERA_TEST_FEW_TYPES) && (TESSERA_TEST_ASAN || TESSERA_TEST_TSAN)
#define TESSERA_TEST_FEW_TYPES
#endif

// Expands to its arguments, or to nothing where few types are wanted. They begin with a comma: `float TESSERA_TEST_MORE_TYPES(, double)`.
#ifdef TESSERA_TEST_FEW_TYPES
#define TESSERA_TEST_MORE_TYPES(...)
#else
#define TESSERA_TEST_MORE_TYPES(...) __VA_ARGS__
#endif

// Elements of rows: exact, with an exponent of their own, with a scale a row.
#define TESSERA_TEST_ELEMENTS \
  float, tessera::bfloat16, tessera::scaled_int8 TESSERA_TEST_MORE_TYPES(, tessera::float16, tessera::float8_e4m3, tessera::float8_e5m2)
#define TESSERA_TEST_SMALL_ELEMENTS \
  tessera::bfloat16, tessera::scaled_int8 TESSERA_TEST_MORE_TYPES(, tessera::float16, tessera::float8_e4m3, tessera::float8_e5m2)
// For what takes long to compile.
#define TESSERA_TEST_SOME_ELEMENTS float, tessera::scaled_int8 TESSERA_TEST_MORE_TYPES(, tessera::float16, tessera::float8_e5m2)

// Stores of the host: the first list for what does not depend on the element, both for what does.
#define TESSERA_TEST_STORES tessera::dense_table<>, tessera::hash_table<>
#define TESSERA_TEST_SMALL_STORES                                                                                                   \
  tessera::dense_table<tessera::bfloat16>, tessera::hash_table<tessera::scaled_int8> TESSERA_TEST_MORE_TYPES(                       \
                                               , tessera::dense_table<tessera::scaled_int8>, tessera::hash_table<tessera::float16>, \
                                               tessera::dense_table<tessera::float8_e4m3>, tessera::hash_table<tessera::float8_e5m2>)

// Optimizers of rows: without state, with states of elements, with one of the row beside them.
#define TESSERA_TEST_OPTIMIZERS \
  tessera::sgd, tessera::adam, tessera::rowwise_adam TESSERA_TEST_MORE_TYPES(, tessera::momentum_sgd, tessera::adagrad, tessera::ftrl)
