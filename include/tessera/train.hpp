// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// All of train/ but checkpoints, which are in <tessera/tessera_files.hpp>: models, trainers, evaluation.
#include <tessera/train/any_source.hpp>
#include <tessera/train/batches_ahead.hpp>
#include <tessera/train/checkpoint_ranks.hpp>
#include <tessera/train/click_model.hpp>
#include <tessera/train/click_model_saved.hpp>
#include <tessera/train/click_net.hpp>
#include <tessera/train/evaluation.hpp>
#include <tessera/train/feature_interaction.hpp>
#include <tessera/train/gathered_predictions.hpp>
#include <tessera/train/group_poolings.hpp>
#include <tessera/train/group_sequences.hpp>
#include <tessera/train/pooling_choice.hpp>
#include <tessera/train/position_vectors.hpp>
#include <tessera/train/progress.hpp>
#include <tessera/train/projected_vectors.hpp>
#include <tessera/train/sequence_pooler.hpp>
#include <tessera/train/sort_ahead.hpp>
#include <tessera/train/trainer.hpp>
#include <tessera/train/trainer_options.hpp>
#include <tessera/train/trainer_ranks.hpp>
#include <tessera/train/vector_places.hpp>
