// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Parquet files, sharding and clustering of logs, and everything in <tessera/tessera.hpp>; needs target tessera::parquet.
#include <tessera/data/external_sort.hpp>
#include <tessera/data/parquet_clustering.hpp>
#include <tessera/data/parquet_columns.hpp>
#include <tessera/data/parquet_decoder.hpp>
#include <tessera/data/parquet_file.hpp>
#include <tessera/data/parquet_log.hpp>
#include <tessera/data/parquet_pages.hpp>
#include <tessera/data/parquet_sink.hpp>
#include <tessera/data/parquet_tables.hpp>
#include <tessera/data/parquet_writer.hpp>
#include <tessera/data/session_clustering.hpp>
#include <tessera/data/session_shards.hpp>
#include <tessera/tessera.hpp>
