// SPDX-FileCopyrightText: Tessera contributors
// SPDX-License-Identifier: Apache-2.0
#include "../support/ranks.hpp"

#include <cstdlib>
#include <exception>
#include <initializer_list>
#include <optional>
#include <string>

#include <tessera/comm/self_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/core/error.hpp>

#include "../support/settings.hpp"

#ifdef TESSERA_TRAIN_MPI
#include <tessera/comm/mpi_communicator.hpp>
#include <tessera/comm/mpi_session.hpp>
#endif

namespace examples {

namespace {

/// What a launcher says of its processes: Open MPI's words, then those of others. -1: nothing.
int launched(std::initializer_list<char const*> names) {
  for (char const* const name : names)
    if (char const* const value = std::getenv(name)) {
      int number = 0;
      if (parse_number(value, number)) return number;
    }
  return -1;
}

}  // namespace

int launched_rank() { return launched({"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"}); }

#ifdef TESSERA_TRAIN_MPI
struct rank_group::mpi_state {
  explicit mpi_state(std::int64_t limit_ms) : comm(session.world(), {{.timeout_ms = limit_ms}}) {
    MPI_Comm same_host = MPI_COMM_NULL;
    MPI_Comm_split_type(session.world(), MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &same_host);
    MPI_Comm_size(same_host, &here);
    MPI_Comm_free(&same_host);
  }

  // MPI takes its own options from the environment.
  static tessera::mpi_session begin() {
    static int argc = 0;
    static char** argv = nullptr;
    return tessera::mpi_session(argc, argv);
  }

  tessera::mpi_session session = begin();
  tessera::mpi_communicator comm;
  int here = 1;
};
#else
struct rank_group::mpi_state {};
#endif

rank_group::rank_group(std::string const& ranks, std::int64_t time_limit_seconds) : limit_ms_(1000 * time_limit_seconds) {
  auto const started = launched({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"});
  if (started > 1 && ranks != "auto" && ranks != "mpi")
    throw tessera::error(tessera::errc::invalid_argument, "option --ranks: MPI's launcher has started several processes: mpi",
                         {{"ranks", ranks}, {"processes", started}});
  if (ranks.starts_with("threads:")) {
    parse_number(ranks.substr(8), threads_);
    here_ = threads_;
  } else if (ranks == "mpi" || (ranks == "auto" && launched_rank() >= 0)) {
#ifdef TESSERA_TRAIN_MPI
    mpi_ = std::make_unique<mpi_state>(limit_ms_);
    has_first_ = mpi_->comm.rank() == 0;
    here_ = mpi_->here;
#else
    throw tessera::error(
        tessera::errc::incompatible,
        "option --ranks: this build has no MPI: install one (Debian: openmpi-bin, libopenmpi-dev), and configure and build anew",
        {{"ranks", ranks}});
#endif
  }
}

rank_group::~rank_group() = default;

void rank_group::run(std::function<void(tessera::any_communicator)> const& prepare,
                     std::function<void(tessera::any_communicator)> const& train) {
#ifdef TESSERA_TRAIN_MPI
  if (mpi_ != nullptr) {
    try {
      prepare(mpi_->comm);
      train(mpi_->comm);
    } catch (std::exception const& e) {
      mpi_->comm.fail(e.what());
      throw;
    }
    return;
  }
#endif
  prepare(tessera::self_communicator());
  if (threads_ > 0)
    tessera::run_thread_ranks(threads_, [&](tessera::thread_communicator& comm) { train(comm); }, {.timeout_ms = limit_ms_});
  else
    train(tessera::self_communicator());
}

}  // namespace examples
