#pragma once
// The functions of the table in method.cpp, one for each rule. Formulas are for one element unless they say otherwise: x is an
// input, b the base, d = x - b a task vector, w a weight.
#include "merge/method.h"

namespace vitrine {

void merge_linear(TensorInputs& in, const MethodParameters& p);       // sum w x / sum w
void merge_passthrough(TensorInputs& in, const MethodParameters& p);  // scale x
void merge_ema(TensorInputs& in, const MethodParameters& p);          // e <- (1 - mu) e + mu x, over the inputs in order
void merge_liti(TensorInputs& in, const MethodParameters& p);         // (1 - eta) b + eta x

void merge_slerp(TensorInputs& in, const MethodParameters& p);               // sin((1-t)a)/sin(a) b + sin(t a)/sin(a) x
void merge_nuslerp(TensorInputs& in, const MethodParameters& p);             // the same of task vectors, or of rows or columns
void merge_multislerp(TensorInputs& in, const MethodParameters& p);          // mean in the tangent space of the sphere
void merge_karcher(TensorInputs& in, const MethodParameters& p);             // Riemannian mean on the sphere
void merge_slerp_task_vectors(TensorInputs& in, const MethodParameters& p);  // of WARP: b + slerp of d1, d2, …

// Pruning of each task vector (none, by magnitude, at random, …), then their sum or, after a vote on the sign, theirs who agree.
void merge_task_arithmetic(TensorInputs& in, const MethodParameters& p);
void merge_ties(TensorInputs& in, const MethodParameters& p);
void merge_dare_linear(TensorInputs& in, const MethodParameters& p);
void merge_dare_ties(TensorInputs& in, const MethodParameters& p);
void merge_della(TensorInputs& in, const MethodParameters& p);
void merge_della_linear(TensorInputs& in, const MethodParameters& p);
void merge_breadcrumbs(TensorInputs& in, const MethodParameters& p);
void merge_breadcrumbs_ties(TensorInputs& in, const MethodParameters& p);

void merge_sce(TensorInputs& in, const MethodParameters& p);           // select, calculate, erase
void merge_model_stock(TensorInputs& in, const MethodParameters& p);   // b + t (mean - b), t from the angles
void merge_nearswap(TensorInputs& in, const MethodParameters& p);      // towards x where it is near b
void merge_arcee_fusion(TensorInputs& in, const MethodParameters& p);  // x where it matters most
void merge_ram(TensorInputs& in, const MethodParameters& p);           // unique changes whole, shared ones averaged
void merge_ramplus_tl(TensorInputs& in, const MethodParameters& p);    // unique changes amplified

}  // namespace vitrine
