// The data of a merge's report: what src/app/picture/data/merge_report.cpp writes into the page of `vitrine merge --report`. The
// conventions are those of ../data.ts: numbers have 7 significant digits, null is what is not known or has no meaning.

/** The whole document. */
export interface MergeDocument {
  /** Of this contract. It changes when a name or meaning below changes. */
  format: 1;
  /** Tells this document from that of the walk-through, which has no kind. */
  kind: "merge";
  /** Of the program: "0.1.0". */
  version: string;
  title: string;
  /** As a recipe names it: "dare_ties". */
  method: string;
  /** "DARE with TIES" */
  methodTitle: string;
  /** "arXiv:2311.03099", an address, any other reference; "": none. */
  paper: string;
  /** Where the paper is, for a link; null where `paper` is no address. */
  paperAddress: string | null;
  /** At least one. Every list "by input" below is in this order. */
  inputs: string[];
  /** Which input the task vectors are taken from; null: there is none. */
  base: number | null;
  /** YAML, as it was given. */
  recipe: string;
  notes: string[];
  tensors: MergeTensor[];
}

/** One tensor of the result. A list may be empty: none of its values is known. */
export interface MergeTensor {
  name: string;
  /** -1: of no layer. */
  layer: number;
  elements: number;
  shape: number[];
  /** By input: L2 norm of its task vector, input − base; without a base of the input's tensor itself. */
  norms: (number | null)[];
  /** Of each pair of those, i < j: 0,1  0,2  …  1,2  … */
  cosines: (number | null)[];
  /** Share of elements at which two of them have opposite signs. */
  signConflict: number | null;
  /** By input: share of the task vector's elements that pruning kept. */
  kept: (number | null)[];
  /** Between the first two of them that are there, radians. */
  angle: number | null;
  /** L2 norms of the result, and of result − base (without a base: result − the first input). */
  resultNorm: number | null;
  resultDistance: number | null;
  /** By name: one value, or one by input. */
  parameters: Record<string, (number | null)[]>;
}
