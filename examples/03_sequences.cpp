// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0

// Attention over a user's history: vectors of single ids from a table whose rows come and go, a softmax over rows of different length, and
// the way back.

#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include <tessera/lookups.hpp>
#include <tessera/nn/loss.hpp>
#include <tessera/tensor/jagged_products.hpp>
#include <tessera/tensor/jagged_softmax.hpp>
#include <tessera/tensor/jagged_vectors.hpp>
#include <tessera/tensor/vector_arithmetic.hpp>

namespace {

constexpr std::int64_t samples = 64, dim = 8, items = 80, genres = 4;

/// Draws users who like one genre, and items offered to them. A fifth of each history is noise that never comes again.
struct clicks {
  std::mt19937 random{1};
  std::int64_t noise = -7;

  std::int64_t below(std::int64_t bound) { return static_cast<std::int64_t>(random()) % bound; }
  static std::int64_t id_of(std::int64_t item) { return 1'000'003 * item - 7; }  // any integers

  tessera::keyed_jagged<> next(tessera::host_exec const& exec, std::vector<float>& labels) {
    std::vector<std::int64_t> ids, lengths(2 * samples, 1), offered;
    for (std::size_t s = 0; s < samples; ++s) {
      auto const liked = below(genres), genre = below(2) == 0 ? liked : below(genres);
      lengths[s] = 2 + below(8);
      for (std::int64_t i = 0; i < lengths[s]; ++i) ids.push_back(below(5) == 0 ? --noise : id_of(below(items / genres) * genres + liked));
      offered.push_back(id_of(below(items / genres) * genres + genre));
      labels[s] = genre == liked ? 1.0F : 0.0F;
    }
    ids.insert(ids.end(), offered.begin(), offered.end());
    return tessera::keyed_jagged<>::from_lengths(exec, {"history", "offered"}, ids, lengths, std::vector<std::int64_t>{samples, samples});
  }
};

}  // namespace

int main() {
  tessera::thread_pool threads(2);
  tessera::system_memory memory;
  tessera::host_exec const exec(threads, memory);
  tessera::adagrad const optimizer{.learning_rate = 0.1F};

  // An id gets a row in the second batch that names it. With 70 rows held, the one not used for longest leaves for the next.
  using table = tessera::hash_table<float, tessera::admit_by_frequency, tessera::evict_lru>;
  std::vector<table> tables;
  tables.emplace_back(exec, tessera::table_options{.dim = dim, .init_bound = 0.1F, .most_rows = 70}, optimizer,
                      tessera::admit_by_frequency{.sightings = 2, .candidates = 10'000});
  tables[0].keep_evicted(true);  // those that leave are shown by evicted(), ids, weights and optimizer states
  std::vector<std::int64_t> const features{0, 0};

  clicks source;
  tessera::lookup_saved saved;
  std::vector<float> labels(samples), logits(samples), slopes(samples), offered(samples * dim), interest(samples * dim);
  std::vector<float> offered_gradient(samples * dim), interest_gradient(samples * dim), more(samples * dim);
  std::vector<float> vector_memory, vector_gradient_memory, more_memory, share_memory, share_gradient_memory;
  std::int64_t left = 0;
  double loss = 0;
  for (int step = 1; step <= 200; ++step) {
    auto const drawn = source.next(exec, labels);
    auto const batch = drawn.view();

    // Numbers or vectors beside the ids of the histories, (ids, width), in rows as long as those.
    auto const history = batch.key(0);
    auto const beside_history = [&](std::vector<float>& room, std::int64_t width) {
      room.resize(static_cast<std::size_t>(history.size() * width));
      return tessera::jagged_vectors_view<float>{{room.data(), history.size(), width}, history.offsets, history.rows};
    };
    auto const vectors = beside_history(vector_memory, dim), vector_gradient = beside_history(vector_gradient_memory, dim);
    auto const more_gradient = beside_history(more_memory, dim);
    auto const share = beside_history(share_memory, 1), share_gradient = beside_history(share_gradient_memory, 1);
    tessera::matrix_view<float> const columns{offered.data(), samples * dim, 1};  // each sample's offered item as a matrix (dim, 1)

    // Attention: a sample's interest is the mean of its history, each item by its likeness to the one offered.
    std::vector<tessera::matrix_view<float>> const out{vectors.values, {offered.data(), samples, dim}};
    tessera::sequence_lookup(exec, tables, features, batch, out, saved);
    tessera::jagged_dense_product(exec, vectors, columns, share);
    tessera::jagged_softmax(exec, share, share);
    tessera::jagged_jagged_product(exec, share, vectors, {interest.data(), samples, dim});

    // Your loss: the logit is the dot product of interest and offered item.
    for (std::size_t s = 0; s < samples; ++s) {
      logits[s] = 0;
      for (std::size_t d = s * dim; d < (s + 1) * dim; ++d) logits[s] += interest[d] * offered[d];
    }
    loss += tessera::bce_with_logits(exec, logits, labels, slopes);
    for (std::size_t d = 0; d < samples * dim; ++d) {
      interest_gradient[d] = slopes[d / dim] * offered[d];
      offered_gradient[d] = slopes[d / dim] * interest[d];
    }

    // The same way back, down to the rows of the table.
    tessera::jagged_jagged_product_backward(exec, share, vectors, {interest_gradient.data(), samples, dim}, share_gradient,
                                            vector_gradient);
    tessera::jagged_softmax_backward(exec, share, share_gradient, share_gradient);
    tessera::jagged_dense_product_backward(exec, vectors, columns, share_gradient, more_gradient, {more.data(), samples * dim, 1});
    tessera::add_vectors(exec, vector_gradient, more_gradient, vector_gradient);
    for (std::size_t d = 0; d < samples * dim; ++d) offered_gradient[d] += more[d];
    std::vector<tessera::matrix_view<float const>> const gradients{vector_gradient.values, {offered_gradient.data(), samples, dim}};
    tessera::sequence_lookup_backward(exec, tables, features, saved, gradients, optimizer);

    left += tables[0].evicted().ids.size();
    tables[0].clear_evicted();
    if (step % 50 == 0) {
      std::printf("steps %d to %d: mean loss %.4f, %lld rows, %lld have left\n", step - 49, step, loss / 50,
                  static_cast<long long>(tables[0].rows()), static_cast<long long>(left));
      loss = 0;
    }
  }
}
