/** Names inside an app's directory (decisions 19). */
export const appTree = {
  /** The checkout with what its build made. */
  repo: "repo",
  /** The version before, kept while an upgrade is not proven. */
  previousRepo: "repo.previous",
  data: "data",
  /** The data as it was before the new version touched them, kept until it is proven. */
  previousData: "data.previous",
  volumes: "volumes",
  logs: "logs",
} as const;
