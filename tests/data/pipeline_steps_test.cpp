// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
// ctest-labels: threads
#include "pipeline_steps_suite.hpp"

using namespace pipeline_steps_suite;

namespace pipeline_steps_test {

namespace {
void check_dense(std::vector<dense_step> steps) { check_steps({{.steps = std::move(steps)}}, {}); }
void check_ids_of(std::vector<id_step> steps, missing_policy missing = missing_policy::own_id, std::string share = {}) {
  check_steps({}, {{.steps = std::move(steps), .missing = missing, .share = std::move(share)}});
}
}  // namespace

TEST_CASE("pipeline steps: numbers") {
  SUBCASE("as stored") { check_dense({}); }
  SUBCASE("log") { check_dense({log_values{}}); }
  SUBCASE("standardise") { check_dense({standardise{}}); }
  SUBCASE("standardise, given") { check_dense({standardise{0.3, 2}}); }
  SUBCASE("clip") { check_dense({clip_numbers{-0.5F, 1}}); }
  SUBCASE("bucketise") { check_dense({bucketise{{-1, 0, 0.25F}, 0}}); }
  SUBCASE("bucketise by quantiles") { check_dense({bucketise{{}, 7}}); }
  SUBCASE("fill") { check_dense({fill_missing{4}}); }
  SUBCASE("indicate") { check_dense({indicate_missing{}}); }
  SUBCASE("several") { check_dense({fill_missing{-1}, log_values{}, standardise{}, clip_numbers{-1, 1}, indicate_missing{}}); }
  SUBCASE("quantiles of logarithms") { check_dense({log_values{}, bucketise{{}, 4}}); }
}

TEST_CASE("pipeline steps: ids") {
  SUBCASE("as stored") { check_ids_of({}); }
  SUBCASE("truncate") { check_ids_of({truncate_ids{.most = 2}}); }
  SUBCASE("truncate, the first") { check_ids_of({truncate_ids{.most = 1, .kept = kept_values::first}}); }
  SUBCASE("hash") { check_ids_of({hash_ids{.size = 100}}); }
  SUBCASE("hash, no id of missing ones") { check_ids_of({hash_ids{.size = 100, .seed = 4}}, missing_policy::no_id); }
  SUBCASE("hash, shared") { check_ids_of({hash_ids{.size = 9}}, missing_policy::own_id, "one"); }
  SUBCASE("modulo") { check_ids_of({modulo_ids{.size = 13}}); }
  SUBCASE("clip") { check_ids_of({clip_ids{0, 500}}); }
  SUBCASE("clip, negative") { check_ids_of({clip_ids{-10, 10}}); }
  SUBCASE("bins") { check_ids_of({bin_ids{{-5, 0, 100, 700}}}); }
  SUBCASE("vocabulary") { check_ids_of({vocabulary{}}); }
  SUBCASE("vocabulary of frequent values") { check_ids_of({vocabulary{.min_count = 2}}, missing_policy::no_id); }
  SUBCASE("vocabulary of a limit that holds all") { check_ids_of({vocabulary{.min_count = 2, .limit = 3000}}); }
  SUBCASE("vocabulary, shared") { check_ids_of({vocabulary{}}, missing_policy::own_id, "s2"); }
  SUBCASE("several") { check_ids_of({truncate_ids{.most = 3}, modulo_ids{.size = 50}, vocabulary{.min_count = 2}}); }
  SUBCASE("bins of a hash") { check_ids_of({hash_ids{.size = 100}, bin_ids{{10, 50}}}); }
}

}  // namespace pipeline_steps_test
