/** The sentences for the codes with which a provider's sign-in may come back. */
export const ERRORS: Record<string, string> = {
  cancelled: 'The sign-in was cancelled. Start it again when you like.',
  expired: 'The sign-in took too long. Start it again.',
  unknown: 'This sign-in was not begun here, or is over. Start it again.',
  denied: 'Your account may not enter this organisation. Ask one of its admins.',
  disabled: 'Your account is disabled. Ask an admin of your organisation.',
  provider: 'The identity provider does not answer as it should. Try again, or ask your admin.',
  invalid: 'The answer of the identity provider could not be proved. Start again, or ask your admin.',
};
