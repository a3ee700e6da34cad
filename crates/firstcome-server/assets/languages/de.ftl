join-title = Sie stellen sich jetzt an
join-lead = Der Einlass folgt der Reihenfolge des Anstellens.
join-button = Anstellen
scheduled-title = Es ist noch nicht geöffnet
scheduled-lead = Ihr Platz bleibt erhalten. Der Einlass beginnt mit der Öffnung.
draw-title = Die Auslosung steht noch bevor
draw-lead = Bei der Öffnung lost das System allen, die bis dahin beigetreten sind, zufällige Plätze zu. Wer später kommt, steht hinter ihnen.
drawn-lead = Eine Auslosung hat allen, die vor der Öffnung beigetreten sind, zufällige Plätze gegeben. In dieser Reihenfolge geht es hinein.
late-lead = Die Auslosung ist vorbei. Wer jetzt beitritt, steht hinten an, in der Reihenfolge des Beitritts.
waiting-title = Sie stehen in der Schlange
waiting-lead = Der Einlass folgt der Reihenfolge des Anstellens.
almost-title = Gleich ist es so weit
almost-lead = Sie sind als Nächstes dran. Lassen Sie diese Seite offen.
paused-title = Die Schlange steht still
paused-lead = Der Veranstalter lässt im Moment niemanden ein. Sie behalten Ihren Platz.
admitted-title = Sie sind an der Reihe
admitted-lead = Gehen Sie hinein, bevor die Zeit abläuft.
admitted-button = Hineingehen
full-title = Die Schlange ist voll
full-lead = Versuchen Sie es gleich noch einmal.
expired-title = Ihr Platz ist verfallen
expired-lead = Diese Seite hatte zu lange keine Verbindung, oder Ihr Besuch ist zu Ende.
left-title = Sie haben die Schlange verlassen
left-lead = Ihr Platz ist an die nächste Person gegangen.
over-title = Diese Schlange ist geschlossen
over-lead = Der Veranstalter hat sie geschlossen. Niemand wird mehr eingelassen.
lost-title = Keine Verbindung
lost-lead = Die Verbindung ist unterbrochen. Sie behalten Ihren Platz; diese Seite versucht es von selbst wieder.
offer-title = Nehmen Sie Ihren Platz auf diesem Gerät ein
offer-lead = Dieser Link holt einen Platz in der Schlange auf dieses Gerät, ein einziges Mal. Auf dem bisherigen Gerät endet er.
offer-button = Platz einnehmen
moved-title = Ihr Platz ist umgezogen
moved-lead = Ein anderes Gerät hat ihn mit dem Link übernommen und führt ihn weiter. Diese Seite und ihr Link führen nicht mehr zu ihm.
cookies-title = Bitte erlauben Sie Cookies
cookies-lead = Ihr Platz steht in einem Cookie, und Ihr Browser hat es nicht behalten. Erlauben Sie Cookies für diese Website und stellen Sie sich wieder an.
rejoin-button = Wieder anstellen
work-busy = Ihr Browser löst eine kleine Aufgabe, die Bots bremst.
work-wait = Eine kleine Aufgabe bremst Bots. Ohne JavaScript warten Sie { $count } s und drücken dann die Schaltfläche.
ahead = { $count ->
    [0] Niemand ist vor Ihnen
    [one] { $count } Person vor Ihnen
   *[other] { $count } Personen vor Ihnen
}
entrants = { $count ->
    [one] { $count } Person nimmt an der Auslosung teil
   *[other] { $count } Personen nehmen an der Auslosung teil
}
draw-link = Auslosung nachprüfen
receipt-link = Beleg speichern
wait-label = Voraussichtliche Wartezeit
wait-soon = weniger als eine Minute
wait-minutes = { $to ->
    [one] etwa { $to } Minute
   *[other] { $from }–{ $to } Minuten
}
wait-hours = { $to ->
    [one] etwa { $to } Stunde
   *[other] { $from }–{ $to } Stunden
}
wait-unknown = noch nicht bekannt
number-label = Ihre Nummer
progress-label = Fortschritt seit dem Anstellen
opens-label = Öffnet in
ends-label = Verbleibende Zeit
updated-label = Letzte Aktualisierung
kept = Sie behalten Ihren Platz, wenn Sie diese Seite neu laden oder schließen.
check-button = Jetzt prüfen
auto-button = Von selbst aktualisieren
leave-button = Schlange verlassen
move-title = Auf einem anderen Gerät weitermachen
move-lead = Öffnen Sie diesen Link auf dem anderen Gerät und nehmen Sie den Platz dort ein. Er gilt einmal: Zeigen Sie ihn niemandem.
soldout-title = Ausverkauft
soldout-lead = Alle sind vergeben.
early-title = Noch nicht offen
early-lead = Sie können ab der Öffnung zugreifen. Diese Seite öffnet sich von selbst.
claim-title = Jetzt sichern
claim-lead = Sichern Sie sich Ihr Exemplar. Eines pro Person.
claim-button = Jetzt sichern
claimed-title = Es gehört Ihnen
claimed-lead = Notieren Sie diesen Code. Diese Seite zeigt ihn in diesem Browser wieder.
ended-title = Es ist vorbei
ended-lead = Hier wird nichts mehr vergeben.
serial-label = Ihre Seriennummer
code-label = Ihr Code
remaining = { $count ->
    [0] keines mehr
   *[other] noch { $count }
}
language-label = Sprache
