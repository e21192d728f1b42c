// Trains small models on numbers made by a formula, through LightGBM's C interface, and predicts.

#include <LightGBM/c_api.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

constexpr int Rows = 2000, Columns = 8, Iterations = 20;
constexpr const char *Shared = " num_threads=1 verbosity=-1 deterministic=true seed=1 num_leaves=15";

// Evenly spread numbers in [0, 1): multiples of irrational numbers without their whole part.
std::vector<double> spreadNumbers() {
  std::vector<double> Numbers;
  for (int Row = 0; Row < Rows; ++Row)
    for (int Column = 0; Column < Columns; ++Column) {
      const double Multiple = (Row + 1) * std::sqrt(2.0 + 3 * Column);
      Numbers.push_back(Multiple - std::floor(Multiple));
    }
  return Numbers;
}

void check(int Status) {
  if (Status == 0)
    return;
  std::fprintf(stderr, "expected LightGBM to succeed, found: %s\n", LGBM_GetLastError());
  std::exit(1);
}

// Trains a model; returns the mean absolute error of what it predicts of what it learned from.
double errorAfterTraining(const std::vector<double> &Numbers, const std::vector<float> &Labels,
                          const std::string &Objective) {
  const std::string Parameters = Objective + Shared;
  DatasetHandle Data = nullptr;
  BoosterHandle Booster = nullptr;
  check(LGBM_DatasetCreateFromMat(Numbers.data(), C_API_DTYPE_FLOAT64, Rows, Columns, 1,
                                  Parameters.c_str(), nullptr, &Data));
  check(LGBM_DatasetSetField(Data, "label", Labels.data(), Rows, C_API_DTYPE_FLOAT32));
  check(LGBM_BoosterCreate(Data, Parameters.c_str(), &Booster));
  for (int Iteration = 0, IsFinished = 0; Iteration < Iterations && !IsFinished; ++Iteration)
    check(LGBM_BoosterUpdateOneIter(Booster, &IsFinished));
  std::vector<double> Predictions(Rows);
  std::int64_t Length = 0;
  check(LGBM_BoosterPredictForMat(Booster, Numbers.data(), C_API_DTYPE_FLOAT64, Rows, Columns, 1,
                                  C_API_PREDICT_NORMAL, 0, -1, Shared, &Length,
                                  Predictions.data()));
  check(LGBM_BoosterFree(Booster));
  check(LGBM_DatasetFree(Data));
  double Sum = 0;
  for (int Row = 0; Row < Rows; ++Row)
    Sum += std::fabs(Predictions[Row] - Labels[Row]);
  return Sum / Rows;
}

} // namespace

int main() {
  const std::vector<double> Numbers = spreadNumbers();
  std::vector<float> Sums, Classes;
  for (int Row = 0; Row < Rows; ++Row) {
    const double *Number = &Numbers[Row * Columns];
    Sums.push_back(static_cast<float>(Number[0] + Number[1] * Number[2]));
    Classes.push_back(Number[0] > Number[3] ? 1 : 0);
  }
  // A model that learned nothing is wrong by 0.3 and 0.5.
  const double Squared = errorAfterTraining(Numbers, Sums, "objective=regression"),
               Binary = errorAfterTraining(Numbers, Classes, "objective=binary"),
               Sampled = errorAfterTraining(Numbers, Sums,
                                            "objective=regression_l1 bagging_freq=1 "
                                            "bagging_fraction=0.7 feature_fraction=0.7");
  if (Squared < 0.1 && Binary < 0.2 && Sampled < 0.15)
    return 0;
  std::fprintf(stderr, "expected errors below 0.1, 0.2 and 0.15, found %g, %g and %g\n", Squared,
               Binary, Sampled);
  return 1;
}
