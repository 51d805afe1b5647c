// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// All of hot/ but what reads and writes files: which rows and samples are hot, and batches of one class.
#include <tessera/hot/access_profile.hpp>
#include <tessera/hot/choose_hot_rows.hpp>
#include <tessera/hot/class_reader.hpp>
#include <tessera/hot/class_schedules.hpp>
#include <tessera/hot/classify_samples.hpp>
#include <tessera/hot/estimate_hot_rows.hpp>
#include <tessera/hot/expected_hot_step.hpp>
#include <tessera/hot/hot_inputs.hpp>
#include <tessera/hot/hot_rows.hpp>
#include <tessera/hot/hot_source.hpp>
#include <tessera/hot/hot_tables.hpp>
#include <tessera/hot/parted_batch.hpp>
#include <tessera/hot/row_marks.hpp>
#include <tessera/hot/student_t.hpp>
#include <tessera/hot/watched_part.hpp>
