/** Something went wrong, and its message is for people already. */
export class ToldError extends Error {}
