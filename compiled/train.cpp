// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/train/group_sequences.ipp>
#include <tessera/train/projected_vectors.ipp>
#include <tessera/train/trainer_ranks.ipp>
#include <tessera/train/vector_places.ipp>
