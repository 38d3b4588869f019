/** Whether an S3 endpoint is Amazon's own, which wants the bucket in the host name; most others want it in the path. */
export function isAmazon(endpoint: string): boolean {
  return URL.parse(endpoint)?.hostname.endsWith(".amazonaws.com") === true;
}
