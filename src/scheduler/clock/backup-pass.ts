/** The place of policy backups in the evaluator's minute (S 1.4.2). */

export interface BackupFailure {
  readonly app: string;
  readonly error: unknown;
}

export interface BackupPass {
  /**
   * Makes the backups that policies want in the minute, in one pass, one app's failure not keeping the others from theirs.
   * @param minuteMs its start, unix milliseconds
   * @param signal aborts when the daemon stops
   * @returns the apps whose backup failed
   */
  run(minuteMs: number, signal: AbortSignal): Promise<readonly BackupFailure[]>;
}
