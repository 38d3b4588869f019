/** An index of packages. */
export interface SourceConfig {
  readonly name: string;
  /** A git URL, the https URL of an index file, or the absolute path of a directory. */
  readonly url: string;
  /** It comes with svc. */
  readonly shipped?: boolean;
}
