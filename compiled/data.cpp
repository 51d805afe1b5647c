// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/data/bound_ids.ipp>
#include <tessera/data/criteo_lines.ipp>
#include <tessera/data/dedupe_model.ipp>
#include <tessera/data/delimited_fields.ipp>
#include <tessera/data/delimited_parser.ipp>
#include <tessera/data/delimited_writer.ipp>
#include <tessera/data/dense_pipeline.ipp>
#include <tessera/data/memory_log.ipp>
#include <tessera/data/picked_rows.ipp>
#include <tessera/data/preprocessing_fit.ipp>
#include <tessera/data/profile_columns.ipp>
#include <tessera/data/sample_columns.ipp>
#include <tessera/data/session_statistics.ipp>
#include <tessera/data/source_profile.ipp>
#include <tessera/data/sparse_pipeline.ipp>
#include <tessera/data/sparse_steps.ipp>
#include <tessera/data/value_counts.ipp>
