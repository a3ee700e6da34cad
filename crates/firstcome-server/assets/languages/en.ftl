# Texts of the page of a waiting room. Each language has the same keys; a test holds them to it.
join-title = You are about to join the line
join-lead = Visitors are let in in the order in which they joined.
join-button = Join the line
scheduled-title = The doors are not open yet
scheduled-lead = Your place in line is kept. Visitors are let in from the opening on.
draw-title = The draw is still to come
draw-lead = At the opening a draw gives each visitor who has joined until then a random place. Visitors who join later come behind them.
drawn-lead = A draw has given each visitor who joined before the opening a random place. Visitors are let in in this order.
late-lead = The draw is over. Visitors who join now come behind, in the order in which they join.
waiting-title = You are in line
waiting-lead = Visitors are let in in the order in which they joined.
almost-title = Almost there
almost-lead = You are next. Please keep this page open.
paused-title = The line is paused
paused-lead = The organiser lets no one in for the moment. You keep your place.
admitted-title = It is your turn
admitted-lead = Go in before the time is over.
admitted-button = Go in
full-title = The line is full
full-lead = Please try again in a moment.
expired-title = Your place has ended
expired-lead = There was no contact with this page for too long, or your visit is over.
left-title = You have left the line
left-lead = Your place has gone to the next visitor.
over-title = This line is closed
over-lead = The organiser has closed it. No one is let in any more.
lost-title = No contact
lost-lead = The connection is lost. You keep your place; this page tries again by itself.
offer-title = Take your place on this device
offer-lead = This link moves a place in line to this device, once. It ends on the device that has it now.
offer-button = Take the place
moved-title = Your place has moved
moved-lead = Another device took it with the link, and goes on with it. This page and its link lead to it no more.
cookies-title = Please allow cookies
cookies-lead = Your place is kept in a cookie, and your browser did not keep it. Allow cookies for this site, and join again.
rejoin-button = Join again
work-busy = Your browser solves a small task that keeps bots back.
work-wait = A small task keeps bots back. Without JavaScript, wait { $count } s and press the button.
ahead = { $count ->
    [0] No one is ahead of you
    [one] { $count } person ahead of you
   *[other] { $count } people ahead of you
}
entrants = { $count ->
    [one] { $count } person is in the draw
   *[other] { $count } people are in the draw
}
draw-link = Check the draw
receipt-link = Save the receipt
wait-label = Expected wait
wait-soon = less than a minute
wait-minutes = { $to ->
    [one] about { $to } minute
   *[other] { $from }–{ $to } minutes
}
wait-hours = { $to ->
    [one] about { $to } hour
   *[other] { $from }–{ $to } hours
}
wait-unknown = not known yet
number-label = Your number
progress-label = Progress since you joined
opens-label = Opens in
ends-label = Time left
updated-label = Last update
kept = You keep your place if you reload or close this page.
check-button = Check now
auto-button = Update by itself
leave-button = Leave the line
move-title = Go on with another device
move-lead = Open this link on the other device and take the place there. It works once: keep it to yourself.
soldout-title = Sold out
soldout-lead = All of them have been claimed.
early-title = Not open yet
early-lead = You can claim from the opening on. This page opens by itself.
claim-title = Yours to claim
claim-lead = Claim yours now. One for each visitor.
claim-button = Claim now
claimed-title = It is yours
claimed-lead = Note this code. This page shows it again in this browser.
ended-title = It is over
ended-lead = Nothing can be claimed here any more.
serial-label = Your serial number
code-label = Your code
remaining = { $count ->
    [0] none left
    [one] { $count } left
   *[other] { $count } left
}
language-label = Language
