/** Stands for a secret that is kept: what answers show, and what keeps it when it is written back. */
export const secretMask = "***";
