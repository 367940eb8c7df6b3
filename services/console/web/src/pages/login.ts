/** The sentences for the codes with which a sign-in at an identity provider may come back (docs/sso.md). */
export const ERRORS: Record<string, string> = {
  start_again: 'This sign-in was used before, took too long, or began in another browser. Start it again.',
  provider_down: 'The identity provider does not answer. Try again in a moment.',
  provider_setup: 'The identity provider is not set up as it should be. Ask an owner of your organisation.',
  provider_denied: 'The identity provider said no, or the sign-in was cancelled. Start it again, or ask an owner.',
  token_refused: 'The answer of the identity provider could not be proved. Start again, or ask an owner.',
  not_admitted: 'Your account may not enter this organisation. Ask one of its owners.',
  disabled: 'Your account is disabled. Ask an admin of your organisation.',
  linked_elsewhere: 'This account belongs to another person of your organisation.',
  unknown_provider: 'This way to sign in does not exist any more. Choose another one.',
  unavailable: 'The service could not finish the sign-in. Try again in a moment.',
};
