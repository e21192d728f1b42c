// Solves a transport problem (LP) and a knapsack with side constraints (MIP) by HiGHS.

#include "Highs.h"

#include <cmath>
#include <cstdio>
#include <vector>

namespace {

constexpr double Infinity = 1e30; // HiGHS takes what is this large as unbounded

// A generator of its own, because those of <random> differ between libraries.
class Generator {
public:
  // A whole number from Low to High.
  int next(int Low, int High) {
    State = State * 6364136223846793005u + 1442695040888963407u;
    return Low + static_cast<int>((State >> 33) % static_cast<unsigned>(High - Low + 1));
  }

private:
  unsigned long long State = 20;
};

// Rows are added one by one: the sum of the columns times their values is from Low to High.
struct Row {
  double Low, High;
  std::vector<int> Columns;
  std::vector<double> Values;
};

void addRow(HighsLp &Lp, const Row &Added) {
  auto &Matrix = Lp.a_matrix_;
  Matrix.index_.insert(Matrix.index_.end(), Added.Columns.begin(), Added.Columns.end());
  Matrix.value_.insert(Matrix.value_.end(), Added.Values.begin(), Added.Values.end());
  Matrix.start_.push_back(static_cast<int>(Matrix.index_.size()));
  Lp.row_lower_.push_back(Added.Low);
  Lp.row_upper_.push_back(Added.High);
  ++Lp.num_row_;
}

HighsLp emptyProblem(int Columns, double Upper) {
  HighsLp Lp;
  Lp.num_col_ = Columns;
  Lp.num_row_ = 0;
  Lp.col_lower_.assign(Columns, 0);
  Lp.col_upper_.assign(Columns, Upper);
  Lp.a_matrix_.format_ = MatrixFormat::kRowwise;
  Lp.a_matrix_.start_ = {0};
  return Lp;
}

// Factories with equal supply, shops with equal demand, a cost for each pair.
HighsLp transport(Generator &Random, int Factories, int Shops) {
  HighsLp Lp = emptyProblem(Factories * Shops, Infinity);
  for (int Pair = 0; Pair < Factories * Shops; ++Pair)
    Lp.col_cost_.push_back(Random.next(1, 50));
  for (int Factory = 0; Factory < Factories; ++Factory) {
    Row Supply{-Infinity, 12.0 * Shops / Factories, {}, std::vector<double>(Shops, 1)};
    for (int Shop = 0; Shop < Shops; ++Shop)
      Supply.Columns.push_back(Factory * Shops + Shop);
    addRow(Lp, Supply);
  }
  for (int Shop = 0; Shop < Shops; ++Shop) {
    Row Demand{10, Infinity, {}, std::vector<double>(Factories, 1)};
    for (int Factory = 0; Factory < Factories; ++Factory)
      Demand.Columns.push_back(Factory * Shops + Shop);
    addRow(Lp, Demand);
  }
  return Lp;
}

// Whole things of which the most valuable are chosen within several weights.
HighsLp knapsack(Generator &Random, int Things, int Weights) {
  HighsLp Lp = emptyProblem(Things, 1);
  Lp.integrality_.assign(Things, HighsVarType::kInteger);
  for (int Thing = 0; Thing < Things; ++Thing)
    Lp.col_cost_.push_back(-Random.next(10, 60));
  for (int Weight = 0; Weight < Weights; ++Weight) {
    Row Limit{-Infinity, 0, {}, {}};
    for (int Thing = 0; Thing < Things; ++Thing) {
      Limit.Columns.push_back(Thing);
      Limit.Values.push_back(Random.next(5, 40));
      Limit.High += Limit.Values.back() / 3;
    }
    addRow(Lp, Limit);
  }
  return Lp;
}

// Whether each row of the solution is within its limits, and whole where it has to be.
bool isFeasible(const HighsLp &Lp, const std::vector<double> &Solution) {
  for (int Row = 0; Row < Lp.num_row_; ++Row) {
    double Sum = 0;
    for (int Place = Lp.a_matrix_.start_[Row]; Place < Lp.a_matrix_.start_[Row + 1]; ++Place)
      Sum += Lp.a_matrix_.value_[Place] * Solution[Lp.a_matrix_.index_[Place]];
    if (Sum < Lp.row_lower_[Row] - 1e-5 || Sum > Lp.row_upper_[Row] + 1e-5)
      return false;
  }
  for (double Value : Solution)
    if (!Lp.integrality_.empty() && std::fabs(Value - std::round(Value)) > 1e-5)
      return false;
  return true;
}

bool isSolved(const HighsLp &Lp, const char *Solver) {
  Highs Optimizer;
  Optimizer.setOptionValue("output_flag", false);
  Optimizer.setOptionValue("threads", 1); // the same instructions each time
  Optimizer.setOptionValue("parallel", "off");
  Optimizer.setOptionValue("solver", Solver);
  return Optimizer.passModel(Lp) == HighsStatus::kOk && Optimizer.run() == HighsStatus::kOk &&
         Optimizer.getModelStatus() == HighsModelStatus::kOptimal &&
         isFeasible(Lp, Optimizer.getSolution().col_value);
}

} // namespace

int main() {
  Generator Random;
  const HighsLp Linear = transport(Random, 12, 40), Whole = knapsack(Random, 25, 3);
  if (isSolved(Linear, "simplex") && isSolved(Linear, "ipm") && isSolved(Whole, "choose"))
    return 0;
  std::fprintf(stderr, "expected optimal solutions, found none\n");
  return 1;
}
