/** An error whose message can be shown to users unchanged. */
export class UserFacingError extends Error {}
