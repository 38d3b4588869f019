/** A passwd entry. */
export interface User {
  readonly uid: number;
  readonly gid: number;
  readonly name: string;
  readonly home: string;
  readonly shell: string;
}
