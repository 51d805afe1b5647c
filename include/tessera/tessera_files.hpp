// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// Files, checkpoints, and everything in <tessera/tessera.hpp>; needs target tessera::files.
#include <tessera/comm/link_model_file.hpp>
#include <tessera/comm/topology_file.hpp>
#include <tessera/data/column_profile_file.hpp>
#include <tessera/data/columns_file.hpp>
#include <tessera/data/preprocessing_file.hpp>
#include <tessera/data/preprocessing_fit_file.hpp>
#include <tessera/data/rules_file.hpp>
#include <tessera/data/sample_classes_file.hpp>
#include <tessera/embed/stored_table_file.hpp>
#include <tessera/embed/table_files.hpp>
#include <tessera/files.hpp>
#include <tessera/hot/access_profile_file.hpp>
#include <tessera/hot/hot_rows_file.hpp>
#include <tessera/plan/collect_exchanges_file.hpp>
#include <tessera/plan/cost_samples_file.hpp>
#include <tessera/plan/fit_collected_file.hpp>
#include <tessera/plan/found_plan_file.hpp>
#include <tessera/plan/learned_cost_file.hpp>
#include <tessera/plan/plan_samples_file.hpp>
#include <tessera/plan/published_cost_file.hpp>
#include <tessera/plan/sample_log_file.hpp>
#include <tessera/plan/table_profile_file.hpp>
#include <tessera/shard/sharding_plan_file.hpp>
#include <tessera/tessera.hpp>
#include <tessera/tower/tower_partition_file.hpp>
#include <tessera/train/checkpoint.hpp>
#include <tessera/train/checkpoint_dense.hpp>
#include <tessera/train/checkpoint_description.hpp>
#include <tessera/train/checkpoint_folder.hpp>
#include <tessera/train/checkpoint_shards.hpp>
#include <tessera/train/checkpoint_writing.hpp>
#include <tessera/train/merged_checkpoint.hpp>
